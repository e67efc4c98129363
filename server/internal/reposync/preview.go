package reposync

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Preview renders commits of one repository for a request of a user. It stores nothing and changes nothing. It
// must be used by one goroutine.
type Preview struct {
	worker *worker // a separate one that only renders
	repo   fleet.Repository
	trees  *treeCache // nil before open
}

// NewPreview returns a preview of a repository; it does no I/O.
func (s *Manager) NewPreview(repo fleet.Repository) *Preview {
	return &Preview{worker: newWorker(s, repo), repo: repo}
}

// Units returns the units of a deployment: one for each variant.
func (p *Preview) Units(ctx context.Context, tx store.Tx, d fleet.Deployment) ([]Unit, error) {
	units, _, err := p.worker.units(ctx, tx, d)
	return units, err
}

// Open reads the credential of the repository. Call it before Fetch and Render.
func (p *Preview) Open(ctx context.Context) error {
	access, err := p.worker.svc.control.Access(ctx, p.repo)
	if err != nil {
		return err
	}
	p.trees = newTreeCache(p.worker.svc.git, access)
	return nil
}

// Fetch fetches the newest commits of revisions.
func (p *Preview) Fetch(ctx context.Context, revisions ...string) (map[string]gitsource.Ref, error) {
	return p.worker.svc.git.Fetch(ctx, p.trees.access, revisions)
}

// Rendering is the result of a commit for one unit.
type Rendering struct {
	Objects  []manifest.Object
	Problem  string // the user error, or ""
	Volatile bool   // the chart uses time or randomness
}

// Render renders a commit for a unit of d, unless the result is already known.
func (p *Preview) Render(ctx context.Context, d fleet.Deployment, u Unit, commit string) (Rendering, error) {
	tree, err := p.trees.at(ctx, commit)
	if err != nil {
		return Rendering{}, err
	}
	v, err := p.worker.renderUnit(ctx, u, tree, p.worker.request(d, u))
	if err != nil || v.problem != "" {
		return Rendering{Problem: v.problem}, err
	}
	var out Rendering
	if v.packed == nil {
		out.Objects, err = p.worker.svc.planner.BundleObjects(ctx, d.TenantID, v.digest)
		return out, err
	}
	out.Volatile = v.packed.volatile
	out.Objects, err = rollout.Objects(v.packed.digest, v.packed.content)
	return out, err
}
