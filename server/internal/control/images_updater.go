package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// updaterConfig configures an updater.
type updaterConfig struct {
	// CommitEmail is the address of the author of commits that are made for somebody who is not named by one.
	CommitEmail string
	// RenderLimits bound what is read of a source.
	RenderLimits render.Limits
}

// updaterDeps are what an updater works with. All are needed.
type updaterDeps struct {
	store   store.Store
	git     updaterGit
	control updaterControl
	renders updaterLimiter
}

// updaterGit is a source of commits. To set images it has to be a committer, too.
type updaterGit interface {
	Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, a gitsource.Access, commit string) (filetree.Tree, error)
}

// updaterControl are the use-cases that an updater needs.
type updaterControl interface {
	// Access returns how a repository is read now, with its credential as it is now.
	Access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error)
	// RecordImages writes the audit entry and the event of new images.
	RecordImages(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, what string) error
}

// updaterLimiter shares what costs CPU between tenants.
type updaterLimiter interface {
	Take(ctx context.Context, tenant string) (release func(), err error)
}

// updater commits new images to the sources of deployments. It is safe for concurrent use.
type updater struct {
	cfg     updaterConfig
	store   store.Store
	git     updaterGit
	control updaterControl
	renders updaterLimiter
}

// newUpdater makes an updater; it does no I/O.
func newUpdater(cfg updaterConfig, deps updaterDeps) *updater {
	return &updater{cfg: cfg, store: deps.store, git: deps.git, control: deps.control, renders: deps.renders}
}

// permission finds a tenant that the caller may read or deploy to.
type permission func(store.Tx) (fleet.Tenant, error)
