package imageupdate

import (
	"context"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Config configures an updater.
type Config struct {
	// CommitEmail is the author address of commits for callers whose name is not an email address.
	CommitEmail string
	// RenderLimits limit the reads of a source.
	RenderLimits render.Limits
}

// Deps are the dependencies. All are required.
type Deps struct {
	Store   store.Store
	Git     Git
	Control Control
	Renders Limiter
}

// Git is a source of commits. To set images it must also be a Committer.
type Git interface {
	Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, a gitsource.Access, commit string) (filetree.Tree, error)
}

// Control has the use cases that an updater needs.
type Control interface {
	// Access returns how a repository is read, with its current credential.
	Access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error)
	// RecordImages writes the audit record and the event of new images.
	RecordImages(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, what string) error
}

// Limiter shares CPU-bound work between tenants.
type Limiter interface {
	Acquire(ctx context.Context, tenant string) (release func(), err error)
}

// Updater commits new images to the sources of deployments. It is safe for concurrent use.
type Updater struct {
	cfg     Config
	store   store.Store
	git     Git
	control Control
	renders Limiter
}

// New returns an updater; it does no I/O.
func New(cfg Config, deps Deps) *Updater {
	return &Updater{cfg: cfg, store: deps.Store, git: deps.Git, control: deps.Control, renders: deps.Renders}
}

// Permission finds a tenant that the caller may read or deploy to.
type Permission func(store.Tx) (fleet.Tenant, error)
