package control

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/objectdiff"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/imageupdate"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// DiffDesired is the name of the desired state of the clusters.
const DiffDesired = "desired"

// Diff is the difference between two revisions of a deployment.
type Diff struct {
	From, To DiffSide
	Variants []VariantDiff // a deployment without variants has one, without a name
	More     int           // number of variants that are not listed
}

// DiffSide is one of the two revisions.
type DiffSide struct {
	Name     string // as requested, or a description
	Revision int64  // number of a kept revision, otherwise 0
	Commit   string // "" if clusters have different ones
}

// VariantDiff is the difference for the agents that share a variant.
type VariantDiff struct {
	Variant string
	Agents  []string // the first agents
	Count   int      // number of all agents
	Objects []objectdiff.Object
	Summary objectdiff.Summary
	Problem string   // why there is no diff: one of the sides does not render
	Notes   []string // information for the reader
}

const (
	maxDiffVariants = 50
	maxDiffAgents   = 10
)

// Diff compares two revisions of a deployment: kept ones by number, or any revision in Git by name, with the
// current spec. By default it compares the desired state of the clusters with the newest commit. It changes
// nothing.
func (s *Service) Diff(ctx context.Context, p auth.Principal, tenant, name, from, to string) (Diff, error) {
	for field, revision := range map[string]string{"from": from, "to": to} {
		if err := checkRevision(field, revision); err != nil {
			return Diff{}, err
		}
	}
	c, err := s.newComparison(ctx, p, tenant, name)
	if err != nil {
		return Diff{}, err
	}
	if c.from, err = c.side("from", from, DiffDesired); err != nil {
		return Diff{}, err
	}
	if c.to, err = c.side("to", to, c.deployment.Source.Revision); err != nil {
		return Diff{}, err
	}
	if err := c.fetch(ctx); err != nil {
		return Diff{}, imageupdate.SourceProblem(err)
	}
	out := Diff{From: c.from.DiffSide, To: c.to.DiffSide}
	for i, u := range c.units {
		if i == maxDiffVariants {
			out.More = len(c.units) - i
			break
		}
		v, err := c.compare(ctx, u)
		if err != nil {
			return Diff{}, imageupdate.SourceProblem(err)
		}
		out.Variants = append(out.Variants, v)
	}
	return out, nil
}

// comparison is one run of Diff.
type comparison struct {
	svc        *Service
	preview    *reposync.Preview
	tenant     fleet.Tenant
	deployment fleet.Deployment
	repo       fleet.Repository
	units      []reposync.Unit
	targets    []fleet.Target
	kept       []fleet.Revision
	from, to   diffSide
}

// diffSide is a side with the origin of its objects.
type diffSide struct {
	DiffSide
	desired bool            // the desired state of clusters
	kept    *fleet.Revision // nil if it is not a kept revision
	number  bool            // requested by number: the result of a rollback to it
	asked   string          // Git revision, if it is neither
	git     bool
}

func (s *Service) newComparison(ctx context.Context, p auth.Principal, tenant, name string) (*comparison, error) {
	c := &comparison{svc: s}
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if c.tenant, err = readable(ctx, tx, p, tenant); err != nil {
			return err
		}
		if c.deployment, err = tx.Deployments().ByName(ctx, c.tenant.ID, name); err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		if c.repo, err = tx.Repositories().Get(ctx, c.tenant.ID, c.deployment.RepositoryID); err != nil {
			return err
		}
		c.preview = s.sources.NewPreview(c.repo)
		if c.units, err = c.preview.Units(ctx, tx, c.deployment); err != nil {
			return err
		}
		if c.targets, err = tx.Targets().OfDeployment(ctx, c.tenant.ID, c.deployment.ID); err != nil {
			return err
		}
		c.kept, err = tx.Revisions().List(ctx, c.tenant.ID, c.deployment.ID, store.Whole())
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(c.units) == 0 {
		if c.deployment.Source.Templated() {
			return nil, fleet.Conflict("the source of deployment %q refers to agents, but it has none yet: there is nothing to compare", name)
		}
		c.units = []reposync.Unit{{Source: c.deployment.Source, Was: c.deployment.Rendered}}
	}
	return c, nil
}

var commitPrefix = regexp.MustCompile(`^[0-9a-f]{7,39}$`)

// side resolves the name of a side.
func (c *comparison) side(field, name, fallback string) (diffSide, error) {
	if name == "" {
		name = fallback
	}
	out := diffSide{DiffSide: DiffSide{Name: name}}
	if field == "from" && name == DiffDesired {
		out.desired = true
		out.Commit = c.desiredCommit()
		return out, nil
	}
	if name == DiffDesired {
		return c.side("from", name, "")
	}
	seq, err := strconv.ParseInt(name, 10, 64)
	number := err == nil && len(name) < 7
	for i, r := range c.kept {
		if (number && r.Seq == seq) || (commitPrefix.MatchString(name) && strings.HasPrefix(r.Commit, name)) || name == r.Commit {
			out.kept, out.number, out.Revision, out.Commit = &c.kept[i], number, r.Seq, r.Commit
			return out, nil
		}
	}
	if number {
		return diffSide{}, fleet.Invalid(field, "revision %d of deployment %q is not kept: kedge deploy history %s lists the kept ones", seq, c.deployment.Name, c.deployment.Name)
	}
	out.git, out.asked = true, name
	if name == "" {
		out.Name = "HEAD"
	}
	return out, nil
}

// desiredCommit returns the commit of the desired states, or "" if there are several or none.
func (c *comparison) desiredCommit() string {
	commit := ""
	for _, t := range c.targets {
		if !rollout.Attached(t) || t.Desired.Digest == "" || t.Desired.Commit == commit {
			continue
		}
		if commit != "" {
			return ""
		}
		commit = t.Desired.Commit
	}
	return commit
}

// fetch fetches the commits that are not kept, with one fetch for both sides.
func (c *comparison) fetch(ctx context.Context) error {
	if err := c.preview.Open(ctx); err != nil {
		return err
	}
	var revisions []string
	for _, side := range []diffSide{c.from, c.to} {
		if side.git && !slices.Contains(revisions, side.asked) {
			revisions = append(revisions, side.asked)
		}
	}
	if len(revisions) == 0 {
		return nil
	}
	refs, err := c.preview.Fetch(ctx, revisions...)
	if err != nil {
		return err
	}
	for _, side := range []*diffSide{&c.from, &c.to} {
		if !side.git {
			continue
		}
		if err := refs[side.asked].Err; err != nil {
			return fleet.Conflict("%v", err)
		}
		side.Commit = refs[side.asked].Commit
	}
	return nil
}

// compare compares both sides for one variant.
func (c *comparison) compare(ctx context.Context, u reposync.Unit) (VariantDiff, error) {
	out := VariantDiff{Variant: u.Variant}
	for _, t := range c.targets {
		if !rollout.Attached(t) || t.Variant != u.Variant {
			continue
		}
		if out.Count++; len(out.Agents) < maxDiffAgents {
			out.Agents = append(out.Agents, t.AgentName)
		}
	}
	slices.Sort(out.Agents)
	from, err := c.objects(ctx, c.from, u, &out)
	if err != nil || out.Problem != "" {
		return out, err
	}
	to, err := c.objects(ctx, c.to, u, &out)
	if err != nil || out.Problem != "" {
		return out, err
	}
	out.Objects, out.Summary = objectdiff.Compare(from, to, c.deployment.Namespace)
	return out, nil
}

// objects returns the objects of one side for one variant. If a side does not render, it is the problem of the
// variant.
func (c *comparison) objects(ctx context.Context, side diffSide, u reposync.Unit, out *VariantDiff) ([]manifest.Object, error) {
	switch {
	case side.desired:
		digest := c.desiredDigest(u, out)
		if digest == "" {
			return nil, nil
		}
		return c.svc.planner.BundleObjects(ctx, c.tenant.ID, digest)
	case side.kept != nil:
		if digest := c.keptDigest(*side.kept, u); digest != "" {
			return c.svc.planner.BundleObjects(ctx, c.tenant.ID, digest)
		}
		if side.number {
			out.Problem = fmt.Sprintf("revision %d was kept for other variants: a rollback to it does not change these clusters", side.Revision)
			return nil, nil
		}
		refs, err := c.refetch(ctx, side.Commit)
		if err != nil || refs.Err != nil {
			out.Problem = fmt.Sprintf("revision %d was kept for other variants, and commit %.12s cannot be read any more", side.Revision, side.Commit)
			return nil, nil
		}
	}
	return c.rendered(ctx, side, u, out)
}

func (c *comparison) refetch(ctx context.Context, commit string) (gitsource.Ref, error) {
	refs, err := c.preview.Fetch(ctx, commit)
	return refs[commit], err
}
