package reposync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// treeCache caches the trees of one pass.
type treeCache struct {
	git    Git
	access gitsource.Access

	mu    sync.Mutex
	trees map[string]filetree.Tree
	units map[fleet.DeploymentID]unitRead // read in advance; each is used once
}

func newTreeCache(git Git, access gitsource.Access) *treeCache {
	return &treeCache{git: git, access: access, trees: map[string]filetree.Tree{}}
}

func (f *treeCache) at(ctx context.Context, commit string) (filetree.Tree, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t, ok := f.trees[commit]; ok {
		return t, nil
	}
	t, err := f.git.Tree(ctx, f.access, commit)
	if err != nil {
		return nil, err
	}
	f.trees[commit] = t
	return t, nil
}

// readAhead reads the units of deployments that will be evaluated, in one transaction: a repository may have a
// thousand of them, and a push evaluates each.
func (f *treeCache) readAhead(ctx context.Context, w *worker, deployments []fleet.Deployment) error {
	read, err := w.readUnits(ctx, deployments)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.units == nil {
		f.units = map[fleet.DeploymentID]unitRead{}
	}
	maps.Copy(f.units, read)
	return err
}

// unitsOf returns the units of a deployment, from readAhead or from the store.
func (f *treeCache) unitsOf(ctx context.Context, w *worker, d fleet.Deployment) (unitRead, error) {
	f.mu.Lock()
	u, ok := f.units[d.ID]
	delete(f.units, d.ID)
	f.mu.Unlock()
	if !ok {
		read, err := w.readUnits(ctx, []fleet.Deployment{d})
		if err != nil {
			return unitRead{}, err
		}
		u = read[d.ID]
	}
	return u, u.err
}

// A transaction blocks other writers: its size is limited in deployments, in targets (assuming equal numbers),
// and in bytes.
const (
	chunkDeployments = 64
	chunkTargets     = 2000
	chunkBytes       = 8 << 20
	// groupTimeout is how long the deployments of a commit wait for a slow render of one of them, so that they
	// change together. Then those continue that remove nothing.
	groupTimeout = 500 * time.Millisecond
)

// evaluateAll evaluates the deployments and commits the changes. Several are evaluated concurrently: an endless
// render delays no other (invariant 12).
func (w *worker) evaluateAll(ctx context.Context, r *pass, deployments []fleet.Deployment, access gitsource.Access, refs map[string]gitsource.Ref) error {
	limit, err := w.chunk(ctx)
	if err != nil {
		return err
	}
	outcomes := make(chan evaluatedOutcome)
	go w.evaluateEach(ctx, deployments, limit, access, refs, outcomes)
	c := collector{w: w, pass: r, limit: limit}
	if !r.due.onlyAdded() { // new deployments lose nothing
		c.scope.Previous = w.evaluatedSoFar()
	}
	var failed error
	for open := true; open; {
		var o evaluatedOutcome
		select {
		case o, open = <-outcomes:
		case <-c.late:
			failed = errors.Join(failed, c.goAhead(ctx))
			continue
		}
		switch {
		case !open:
		case o.err != nil:
			c.failed = append(c.failed, o.deployment)
			failed = errors.Join(failed, fmt.Errorf("deployment %q: %w", o.deployment.Name, o.err))
		default:
			failed = errors.Join(failed, c.add(ctx, o.outcome))
		}
	}
	if err := c.except(ctx); err != nil {
		r.skipped = true
		failed = errors.Join(failed, err)
	}
	return errors.Join(failed, c.flush(ctx))
}

// except records, before objects are removed from others, which deployments could not be evaluated: objects may
// have moved there.
func (c *collector) except(ctx context.Context) error {
	if len(c.failed) == 0 {
		return nil
	}
	c.scope.Unevaluated = append(c.scope.Unevaluated, c.failed...)
	return c.w.exceptEvaluated(ctx, c.failed)
}

// evaluatedOutcome is one evaluated deployment.
type evaluatedOutcome struct {
	outcome
	err error
}

// evaluateEach sends the result of every deployment as soon as it is known, and closes out. It reads at most
// batch deployments together.
func (w *worker) evaluateEach(ctx context.Context, deployments []fleet.Deployment, batch int, access gitsource.Access, refs map[string]gitsource.Ref, out chan<- evaluatedOutcome) {
	trees := newTreeCache(w.svc.git, access)
	var g errgroup.Group
	// One more than the concurrent renders, so that deployments without a render pass.
	g.SetLimit(w.svc.cfg.RendersAtOnce + 1)
	for chunk := range slices.Chunk(deployments, batch) {
		if err := trees.readAhead(ctx, w, chunk); err != nil {
			for _, d := range chunk {
				out <- evaluatedOutcome{outcome{deployment: d}, err}
			}
			continue
		}
		for _, d := range chunk {
			g.Go(func() error {
				for _, found := range w.evaluateSpecs(ctx, d, refs, trees) {
					out <- found
				}
				return nil
			})
		}
	}
	_ = g.Wait() // none of them fails
	close(out)
}

// collector collects outcomes into transactions. All of them form one, unless it would be too large or one is
// late: then removals of objects are written last, because the objects may have moved to a deployment that
// follows, and must not be deleted in between.
type collector struct {
	w       *worker
	pass    *pass
	limit   int
	changed []outcome
	bytes   int
	losing  []outcome           // waiting for the others
	failed  []fleet.Deployment  // not evaluated for a reason outside their sources
	scope   rollout.CommitScope // knowledge about all of them
	late    <-chan time.Time    // when the collected outcomes have waited long enough; nil if there are none
}

func (c *collector) add(ctx context.Context, o outcome) error {
	c.w.markEvaluatedSpec(o.deployment)
	if o.unevaluated() {
		c.scope.Unevaluated = append(c.scope.Unevaluated, o.deployment)
	}
	noteEvaluated(&c.scope, o)
	if !o.needed() && !c.pass.due.rewound {
		c.w.rememberEvaluations(o)
		c.w.evaluatedAt(o)
		c.w.free(c.pass, o.deployment.ID)
		return nil
	}
	if len(c.changed) == 0 {
		c.late = time.After(groupTimeout)
	}
	c.changed = append(c.changed, o)
	c.bytes += o.bytes()
	if len(c.changed) < c.limit && c.bytes < chunkBytes {
		return nil
	}
	return c.goAhead(ctx)
}

// goAhead writes the collected outcomes, except those that remove objects.
func (c *collector) goAhead(ctx context.Context) error {
	var gaining []outcome
	for _, o := range c.changed {
		loses, err := c.w.takesAway(ctx, o)
		if err != nil {
			return err
		}
		if loses {
			c.losing = append(c.losing, o)
		} else {
			gaining = append(gaining, o)
		}
	}
	c.changed, c.bytes, c.late = nil, 0, nil
	_, err := c.write(ctx, gaining, false)
	return err
}

// flush writes the rest. If a deployment could not be evaluated, outcomes that remove objects are evaluated
// again later: the objects may have moved there.
func (c *collector) flush(ctx context.Context) error {
	if c.pass.skipped {
		return c.goAhead(ctx)
	}
	rest := append(c.changed, c.losing...)
	c.changed, c.losing, c.bytes, c.late = nil, nil, 0, nil
	for _, o := range rest {
		if err := addWanted(&c.scope, o); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(rest, c.limit) {
		overtaken, err := c.write(ctx, chunk, true)
		if err != nil {
			return err
		}
		if overtaken {
			c.pass.skipped, c.changed = true, append(c.changed, chunk...)
		}
	}
	if c.pass.skipped {
		return c.goAhead(ctx)
	}
	c.w.mu.Lock()
	newest := c.pass.configs == c.w.configs
	c.w.mu.Unlock()
	if !newest || len(c.failed) > 0 {
		return nil
	}
	return c.w.allEvaluated(ctx, c.scope)
}

// write commits a chunk: all of it, or with whole set nothing if any of it was overtaken.
func (c *collector) write(ctx context.Context, chunk []outcome, whole bool) (overtaken bool, err error) {
	overtaken, err = c.w.commit(ctx, chunk, &c.scope, c.pass.due, whole)
	if err != nil || overtaken && whole {
		return overtaken, err
	}
	if !overtaken {
		c.w.evaluatedAt(chunk...)
	}
	ids := make([]fleet.DeploymentID, len(chunk))
	for i, o := range chunk {
		ids[i] = o.deployment.ID
	}
	c.w.free(c.pass, ids...)
	return overtaken, nil
}

// allEvaluated records that every deployment of the repository was evaluated: decisions that waited for that
// are made now.
func (w *worker) allEvaluated(ctx context.Context, scope rollout.CommitScope) error {
	scope.Evaluated = w.id
	waits := func(h fleet.HandOver) bool { return h.Repository == w.id || scope.IsEvaluated(h.To) }
	var found bool
	err := w.svc.store.View(ctx, func(tx store.Tx) error {
		targets, err := tx.Targets().HandingOver(ctx, w.tenant)
		found = slices.ContainsFunc(targets, func(t fleet.Target) bool { return slices.ContainsFunc(t.Desired.HandOvers, waits) })
		return err
	})
	if err != nil || !found {
		return err
	}
	return w.svc.store.Update(ctx, func(tx store.Tx) error {
		return rollout.NewHandOvers(w.svc.planner, tx, &scope).Refresh(ctx, w.tenant, waits)
	})
}

// unevaluated reports whether the deployment could not be evaluated at this commit, which may have changed its
// objects.
func (o outcome) unevaluated() bool {
	if o.pending != nil && !o.pending.promotable() && o.pending.needed() {
		return true
	}
	if o.problem != "" {
		return o.problem != rollout.SourceError(o.deployment)
	}
	return slices.ContainsFunc(o.parts, func(p part) bool { return p.evaluation.problem != "" && (!p.reused || p.touched) })
}

// takesAway reports whether a deployment would lose objects.
func (w *worker) takesAway(ctx context.Context, o outcome) (bool, error) {
	if o.pending.promotable() { // perhaps in another namespace
		return w.givenOut(ctx, o.deployment)
	}
	for _, p := range o.parts {
		if p.packed == nil || p.Was.Digest == "" {
			continue
		}
		before, err := w.svc.planner.BundleObjects(ctx, w.tenant, p.Was.Digest)
		if err != nil {
			return false, err
		}
		after, err := manifest.Unpack(p.packed.digest, p.packed.content, wire.MaxBundleContent)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(before, func(b manifest.Object) bool { _, kept := after.Get(b.Ref); return !kept }) {
			return true, nil
		}
	}
	return false, nil
}

// givenOut reports whether any agent has a desired state of a deployment.
func (w *worker) givenOut(ctx context.Context, d fleet.Deployment) (given bool, err error) {
	err = w.svc.store.View(ctx, func(tx store.Tx) error {
		targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
		given = slices.ContainsFunc(targets, func(t fleet.Target) bool { return t.Desired.Digest != "" })
		return err
	})
	return given, err
}

// chunk returns how many deployments one transaction may change.
func (w *worker) chunk(ctx context.Context) (int, error) {
	var targets, deployments int
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		if targets, err = tx.Targets().Count(ctx, w.tenant); err != nil {
			return err
		}
		deployments, err = tx.Deployments().Count(ctx, w.tenant)
		return err
	})
	each := max(1, targets/max(1, deployments))
	return max(1, min(chunkDeployments, chunkTargets/each)), err
}
