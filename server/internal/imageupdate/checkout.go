package imageupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// checkout is the newest commit of the revision of a deployment, read for one request.
type checkout struct {
	svc        *Updater
	tenant     fleet.Tenant
	deployment fleet.Deployment
	repo       fleet.Repository
	access     gitsource.Access
	sources    []fleet.Source // for its agents, without duplicates
	ref        gitsource.Ref
	tree       filetree.Tree
}

// checkout reads a deployment that the permission allows, and fetches its revision.
func (s *Updater) checkout(ctx context.Context, name string, may Permission) (*checkout, error) {
	c := &checkout{svc: s}
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if c.tenant, err = may(tx); err != nil {
			return err
		}
		if c.deployment, err = tx.Deployments().ByName(ctx, c.tenant.ID, name); err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		if c.repo, err = tx.Repositories().Get(ctx, c.tenant.ID, c.deployment.RepositoryID); err != nil {
			return err
		}
		c.sources, err = sourcesOf(ctx, tx, c.deployment)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(c.sources) == 0 {
		return nil, fleet.Conflict("the source of deployment %q refers to agents, but it has none yet: the files are unknown", name)
	}
	if c.access, err = s.control.Access(ctx, c.repo); err != nil {
		return nil, err
	}
	if err := c.fetch(ctx); err != nil {
		return nil, SourceProblem(err)
	}
	return c, nil
}

// sourcesOf returns the sources of a deployment for its agents, without duplicates.
func sourcesOf(ctx context.Context, tx store.Tx, d fleet.Deployment) ([]fleet.Source, error) {
	if !d.Source.Templated() {
		return []fleet.Source{d.Source}, nil
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	targets = slices.DeleteFunc(targets, func(t fleet.Target) bool {
		other := !rollout.Attached(t) || rollout.Refused(t) || taken[t.Variant]
		taken[t.Variant] = taken[t.Variant] || !other
		return other
	})
	agents, err := listing.AgentsOf(ctx, tx, targets, nil)
	if err != nil {
		return nil, err
	}
	var out []fleet.Source
	for _, t := range targets {
		source, _, err := d.Source.For(agents[t.AgentID])
		if err != nil {
			continue // a label is missing, which its target shows
		}
		if !slices.ContainsFunc(out, func(o fleet.Source) bool { return o.Equal(source) }) {
			out = append(out, source)
		}
	}
	return out, nil
}

// fetch fetches the newest commit.
func (c *checkout) fetch(ctx context.Context) error {
	revision := c.deployment.Source.Revision
	refs, err := c.svc.git.Fetch(ctx, c.access, []string{revision})
	if err != nil {
		return err
	}
	if c.ref = refs[revision]; c.ref.Err != nil {
		return fleet.Conflict("%v", c.ref.Err)
	}
	c.tree, err = c.svc.git.Tree(ctx, c.access, c.ref.Commit)
	return err
}

const branchPrefix = "refs/heads/"

// writable refuses a revision that cannot be pushed to, and one whose commits could not be used.
func (c *checkout) writable(req SetImages) error {
	if c.repo.Signers != "" && (req.Branch == "" || req.Branch == c.branch()) && !req.DryRun {
		return fleet.Conflict("%s requires signed commits, and the server does not sign, so the change could not be deployed: commit it to a separate branch (kedge image set --branch) that a person signs and merges", c.repo.URL)
	}
	return c.onBranch()
}

func (c *checkout) onBranch() error {
	if c.ref.Name == "HEAD" || strings.HasPrefix(c.ref.Name, branchPrefix) {
		return nil
	}
	revision := c.deployment.Source.Revision
	what := "a commit"
	switch {
	case strings.HasPrefix(c.ref.Name, "refs/tags/") && strings.TrimPrefix(c.ref.Name, "refs/tags/") != strings.TrimPrefix(revision, "refs/tags/"):
		what = "a version range, now tag " + strings.TrimPrefix(c.ref.Name, "refs/tags/")
	case strings.HasPrefix(c.ref.Name, "refs/tags/"):
		what = "a tag"
	case c.ref.Name != "":
		what = "no branch"
	}
	return fleet.Conflict("deployment %q follows %q, which is %s: images can be set only on a branch; set a branch (kedge deploy set %s --revision BRANCH), or change the files and create a new tag",
		c.deployment.Name, revision, what, c.deployment.Name)
}

// branch returns the branch of the deployment, "" for the default branch.
func (c *checkout) branch() string {
	return strings.TrimPrefix(strings.TrimPrefix(c.ref.Name, branchPrefix), "HEAD")
}

// branchName is branch for people.
func (c *checkout) branchName() string {
	if branch := c.branch(); branch != "" {
		return branch
	}
	return "HEAD"
}

// SourceProblem converts errors of Git and of the files to user errors. Other errors stay unchanged.
func SourceProblem(err error) error {
	var files *imageset.Error
	var remote *gitsource.RemoteError
	var missing *gitsource.RefNotFoundError
	var protected *gitsource.ProtectedError
	var edit *gitsource.EditError
	switch {
	case errors.As(err, &files):
		return fleet.Invalid("images", "%v", err)
	case render.IsUserError(err):
		return fleet.Conflict("the source cannot be read: %v", err)
	case errors.Is(err, gitsource.ErrNoPermission):
		return fleet.Conflict("%v: give the repository a credential that may write (kedge repo set), or change the files yourself", err)
	case errors.Is(err, gitsource.ErrBranchExists):
		return fleet.Conflict("%v: use another name", err)
	case errors.As(err, &remote), errors.As(err, &missing), errors.As(err, &protected), errors.Is(err, gitsource.ErrEmpty):
		return fleet.Conflict("%v", err)
	case errors.As(err, &edit):
		return fleet.Invalid("branch", "%v", err)
	}
	return err
}
