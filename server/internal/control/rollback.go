package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Revisions lists the kept revisions, newest first.
func (s *Service) Revisions(ctx context.Context, p auth.Principal, tenant, name string, page store.Page) ([]fleet.Revision, error) {
	var out []fleet.Revision
	var repo fleet.Repository
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		if repo, err = tx.Repositories().Get(ctx, t.ID, d.RepositoryID); err != nil {
			return fmt.Errorf("repository of deployment %q: %w", name, err)
		}
		out, err = tx.Revisions().List(ctx, t.ID, d.ID, page)
		return err
	})
	if err == nil {
		s.describeCommits(ctx, repo, out)
	}
	return out, err
}

// commitReader is a Git that can describe fetched commits.
type commitReader interface {
	CommitInfo(ctx context.Context, a gitsource.Access, commit string) (gitsource.CommitInfo, error)
}

// describeCommits adds author and message to revisions. Revisions whose commit is not in the mirror stay
// without: the listing must work without Git.
func (s *Service) describeCommits(ctx context.Context, repo fleet.Repository, revisions []fleet.Revision) {
	git, ok := s.git.(commitReader)
	if !ok {
		return
	}
	access, err := s.access(ctx, repo)
	if err != nil {
		return
	}
	for i := range revisions {
		if info, err := git.CommitInfo(ctx, access, revisions[i].Commit); err == nil {
			revisions[i].Author, revisions[i].Message = info.Author, info.Subject
		}
	}
}

// Rollback returns to a kept revision with a new run. It needs no Git. An automated deployment stays there
// until it is released.
func (s *Service) Rollback(ctx context.Context, p auth.Principal, tenant, name string, req Rollback) (fleet.SyncRun, error) {
	if (req.Revision == 0) == (req.Commit == "") {
		return fleet.SyncRun{}, fleet.Invalid("revision", "either the number of a revision or a commit is required")
	}
	if req.Commit != "" && len(req.Commit) < 7 {
		return fleet.SyncRun{}, fleet.Invalid("commit", "at least 7 characters of the commit are required")
	}
	return s.createRun(ctx, p, tenant, name, func(tx store.Tx, d fleet.Deployment) (fleet.SyncRun, error) {
		if err := checkOwner(ctx, tx, p, deploymentResource(d), "rolled back"); err != nil {
			return fleet.SyncRun{}, err
		}
		kept, err := tx.Revisions().List(ctx, d.TenantID, d.ID, store.Whole())
		if err != nil {
			return fleet.SyncRun{}, err
		}
		for _, r := range kept {
			if r.Seq == req.Revision || (req.Commit != "" && strings.HasPrefix(r.Commit, req.Commit)) {
				return fleet.SyncRun{Kind: fleet.RunRollback, Kept: r.Seq, Revision: r.Commit}, nil
			}
		}
		if req.Commit != "" {
			return fleet.SyncRun{}, fleet.Invalid("commit", "deployment %q has no kept revision of commit %q", d.Name, req.Commit)
		}
		return fleet.SyncRun{}, fleet.Invalid("revision", "revision %d of deployment %q is not kept", req.Revision, d.Name)
	})
}

// ReleaseDeployment ends the pin of an automated deployment: it follows its source again. One that is not
// pinned does not change.
func (s *Service) ReleaseDeployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	err := s.store.Update(ctx, func(tx store.Tx) error {
		_, d, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, deploymentResource(d), "released"); err != nil {
			return err
		}
		if d.Policy.Manual {
			return fleet.Conflict("deployment %q is manual: start a sync run, or make it automated", name)
		}
		if !d.Pin.Active() {
			return nil
		}
		return s.unpin(ctx, tx, p, d)
	})
	if err != nil {
		return DeploymentView{}, err
	}
	return s.Deployment(ctx, p, tenant, name)
}

// unpin ends the pin of a deployment.
func (s *Service) unpin(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment) error {
	t, err := tx.Tenants().Get(ctx, d.TenantID)
	if err != nil {
		return err
	}
	was := d.Pin
	d.Pin = fleet.Pin{}
	return s.edited(ctx, tx, p, t, d, "deployment.release", fmt.Sprintf("was pinned to revision %d", was.Revision))
}
