package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// verdict is what a worker found out about a deployment at one content of its folder.
type verdict struct {
	folder  string  // ID of the folder; equal IDs mean that nothing has to be looked at
	key     string  // of the render
	problem string  // the user's mistake; "" when there is none
	packed  *packed // nil when nothing new was rendered
	commit  string
}

// packed is a rendered revision as it is stored: compressed before the transaction, which holds up
// every other writer.
type packed struct {
	digest  string
	content []byte
	size    int64
	objects int
}

// A transaction holds up every other writer: what one writes is bounded in deployments, in targets
// (as if every deployment were on every agent) and in bytes.
const (
	chunkDeployments = 64
	chunkTargets     = 2000
	chunkBytes       = 8 << 20
)

// evaluateAll looks at every deployment whose revision was resolved and commits what changed.
func (w *worker) evaluateAll(ctx context.Context, deployments []fleet.Deployment, refs map[string]gitsource.Ref, due wakeup) error {
	trees := map[string]filetree.Tree{}
	limit, err := w.chunk(ctx)
	if err != nil {
		return err
	}
	var failed error
	var changed []change
	var bytes int
	for _, d := range deployments {
		ref, ok := refs[d.Source.Revision]
		if !ok { // not asked for
			continue
		}
		v, err := w.evaluate(ctx, d, ref, trees)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("deployment %q: %w", d.Name, err))
			continue
		}
		if c := (change{d, v}); c.needed() || due.rewound {
			changed = append(changed, c)
			bytes += c.bytes()
		} else {
			w.seen[d.ID] = v
		}
		if len(changed) >= limit || bytes >= chunkBytes {
			if err := w.commit(ctx, changed, due); err != nil {
				return err
			}
			changed, bytes = changed[:0], 0
		}
	}
	if err := w.commit(ctx, changed, due); err != nil {
		return err
	}
	return failed
}

// chunk is how many deployments one transaction may change.
func (w *worker) chunk(ctx context.Context) (int, error) {
	agents := 1
	err := w.svc.store.View(ctx, func(tx store.Tx) error {
		counts, err := tx.Targets().CountByAgent(ctx, w.repo.TenantID)
		agents = max(agents, len(counts))
		return err
	})
	return max(1, min(chunkDeployments, chunkTargets/agents)), err
}

// evaluate finds out what a commit means for a deployment. An error is ours (Git, disk); a user's
// mistake is in the verdict.
func (w *worker) evaluate(ctx context.Context, d fleet.Deployment, ref gitsource.Ref, trees map[string]filetree.Tree) (verdict, error) {
	if ref.Err != nil {
		return verdict{problem: ref.Err.Error()}, nil
	}
	tree, err := w.tree(ctx, ref.Commit, trees)
	if err != nil {
		return verdict{}, err
	}
	// A missing folder has no ID; render says so in the user's words.
	folder, _ := tree.ID(ctx, d.Source.Path)
	if last, ok := w.seen[d.ID]; ok && folder != "" && last.folder == folder {
		return last, nil
	}
	v, err := w.look(ctx, d, tree)
	if err != nil {
		return verdict{}, err
	}
	v.folder, v.commit = folder, ref.Commit
	return v, nil
}

func (w *worker) tree(ctx context.Context, commit string, trees map[string]filetree.Tree) (filetree.Tree, error) {
	if t, ok := trees[commit]; ok {
		return t, nil
	}
	t, err := w.svc.git.Tree(ctx, w.repo.URL, commit)
	if err != nil {
		return nil, err
	}
	trees[commit] = t
	return t, nil
}

// look renders what has to be rendered.
func (w *worker) look(ctx context.Context, d fleet.Deployment, tree filetree.Tree) (verdict, error) {
	req := render.Request{
		Path: d.Source.Path, Globs: d.Source.Globs, Namespace: d.Namespace, AllowEmpty: d.Policy.AllowEmpty, Limits: w.svc.cfg.RenderLimits,
	}
	key, err := render.Key(ctx, tree, req)
	if err == nil && key == d.Rendered.Key {
		return verdict{key: key}, nil
	}
	var result *packed
	if err == nil {
		result, err = w.renderOne(ctx, tree, req)
	}
	switch {
	case err == nil:
		return verdict{key: key, packed: result}, nil
	case render.IsUserError(err):
		return verdict{key: key, problem: err.Error()}, nil
	default:
		return verdict{}, err
	}
}

func (w *worker) renderOne(ctx context.Context, tree filetree.Tree, req render.Request) (out *packed, err error) {
	release, err := take(ctx, w.svc.sources.render)
	if err != nil {
		return nil, err
	}
	defer release()
	defer func() {
		// What a parser trips over is in Git and would be there again after a restart: the server must
		// outlive it.
		if p := recover(); p != nil {
			w.log.Error("rendering panicked", "path", req.Path, "panic", p)
			out, err = nil, &render.Error{Path: req.Path, Problem: "a file cannot be read: the parser gave up on it"}
		}
	}()
	result, err := render.Render(ctx, tree, req)
	if err != nil {
		return nil, err
	}
	out = &packed{objects: result.Set.Len()}
	out.digest, out.content, out.size = result.Set.Pack()
	if out.size > wire.MaxBundleContent {
		return nil, &render.Error{Path: req.Path, Problem: fmt.Sprintf(
			"its objects have %d bytes in all, and agents take %d: split the deployment", out.size, wire.MaxBundleContent)}
	}
	return out, nil
}

// change is a verdict on a deployment as it was read before the render.
type change struct {
	deployment fleet.Deployment
	verdict    verdict
}

// needed reports whether anything would be written.
func (c change) needed() bool {
	return c.verdict.packed != nil || c.verdict.problem != c.deployment.SourceError
}

func (c change) bytes() int {
	if c.verdict.packed == nil {
		return 0
	}
	return len(c.verdict.packed.content)
}

// commit writes the verdicts on several deployments of one commit in one transaction, so that their
// targets change together.
func (w *worker) commit(ctx context.Context, changes []change, due wakeup) error {
	if len(changes) > 0 {
		err := w.svc.store.Update(ctx, func(tx store.Tx) error {
			for _, c := range changes {
				if err := w.commitOne(ctx, tx, c); err != nil {
					return fmt.Errorf("recording a revision of deployment %q: %w", c.deployment.Name, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if due.pushed && w.svc.cfg.Observe != nil {
			w.svc.cfg.Observe(time.Since(due.at))
		}
	}
	for _, c := range changes {
		c.verdict.packed = nil // the bundle is in the store: memory holds only what saves work
		w.seen[c.deployment.ID] = c.verdict
	}
	return nil
}

func (w *worker) commitOne(ctx context.Context, tx store.Tx, c change) error {
	d, err := tx.Deployments().Get(ctx, w.repo.TenantID, c.deployment.ID)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !d.DeletedAt.IsZero()) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if c.verdict.problem != "" {
		return w.commitProblem(ctx, tx, d, c.verdict)
	}
	was := d.Rendered.Digest
	if err := w.commitRendered(ctx, tx, &d, c.verdict); err != nil {
		return err
	}
	return w.svc.advanceTargets(ctx, tx, d, was != d.Rendered.Digest)
}

func (w *worker) commitProblem(ctx context.Context, tx store.Tx, d fleet.Deployment, v verdict) error {
	if d.SourceError == v.problem {
		return nil
	}
	if err := tx.Deployments().SetSourceError(ctx, d.TenantID, d.ID, v.problem, w.svc.cfg.Now()); err != nil {
		return err
	}
	w.log.Info("a revision cannot be used", obs.KeyDeployment, d.Name, obs.KeyCommit, v.commit, obs.KeyUserError, true, obs.KeyReason, v.problem)
	return w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventWarning, Reason: "RenderFailed", Deployment: d.Name, Message: v.problem,
	})
}

func (w *worker) commitRendered(ctx context.Context, tx store.Tx, d *fleet.Deployment, v verdict) error {
	if v.packed == nil {
		if d.SourceError == "" {
			return nil
		}
		return tx.Deployments().SetSourceError(ctx, d.TenantID, d.ID, "", w.svc.cfg.Now())
	}
	now := w.svc.cfg.Now()
	if err := tx.Bundles().Put(ctx, fleet.Bundle{
		TenantID: d.TenantID, Digest: v.packed.digest, Content: v.packed.content, Size: v.packed.size, Objects: v.packed.objects, CreatedAt: now,
	}); err != nil {
		return err
	}
	fresh := d.Rendered.Digest != v.packed.digest
	d.Rendered = fleet.Rendered{Commit: v.commit, Key: v.key, Digest: v.packed.digest, At: now}
	if err := tx.Deployments().SetRendered(ctx, d.TenantID, d.ID, d.Rendered); err != nil {
		return err
	}
	if !fresh {
		return nil
	}
	w.log.Info("a revision was rendered", obs.KeyDeployment, d.Name, obs.KeyCommit, v.commit, "objects", v.packed.objects, obs.KeyDigest, v.packed.digest)
	return w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventNormal, Reason: "RevisionRendered", Deployment: d.Name,
		Message: fmt.Sprintf("commit %.12s: %d objects", v.commit, v.packed.objects),
	})
}

// advanceTargets gives the targets of d what it was last rendered to: all of them when that is new,
// else only those whose agents are ahead of the server.
func (s *Service) advanceTargets(ctx context.Context, tx store.Tx, d fleet.Deployment, fresh bool) error {
	if d.Rendered.Digest == "" {
		return nil
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.Desired.Tombstone || (!fresh && !rewound(t)) {
			continue
		}
		desired := desire(d, next(newest(t)))
		// Held until the agent has taken up what came after the rewind: it may skip states in between.
		notTaken := t.Observed.Version.Compare(t.Desired.Version) < 0
		desired.HoldPrune = rewound(t) || (t.Desired.HoldPrune && notTaken)
		if err := tx.Targets().SetDesired(ctx, d.TenantID, t.ID, desired); err != nil {
			return err
		}
	}
	return nil
}

// rewound reports whether the agent of a target has something that the server knows nothing of.
func rewound(t fleet.Target) bool {
	order := t.Observed.Version.Compare(t.Desired.Version)
	return order > 0 || (order == 0 && t.Observed.Sync == fleet.SyncRewound)
}

// newest is the highest version of a target that anybody has seen: what comes next has to be
// higher even when the database is older than the cluster.
func newest(t fleet.Target) fleet.Version {
	if t.Observed.Version.Compare(t.Desired.Version) > 0 {
		return t.Observed.Version
	}
	return t.Desired.Version
}
