package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// unit is what is rendered once: a deployment, or one variant of it for all agents that share it.
type unit struct {
	variant string
	agent   string         // the name of one agent that it is for; "" without variants
	source  fleet.Source   // as it is for its agents
	was     fleet.Rendered // what it was last rendered to
	problem string         // why its newest revision could not be used, as it is recorded
}

type unitKey struct {
	deployment fleet.DeploymentID
	variant    string
}

// verdict is what a worker found out about a unit at one content of its folder.
type verdict struct {
	input   string  // what else than the folder it depends on
	folder  string  // ID of the folder; with equal inputs, equal IDs mean that nothing has to be looked at
	key     string  // of the render
	digest  string  // of the result; "" when there is a problem
	problem string  // the user's mistake; "" when there is none
	packed  *packed // nil when nothing new was rendered
}

// packed is a rendered revision as it is stored: compressed before the transaction, which holds up
// every other writer.
type packed struct {
	digest  string
	content []byte
	size    int64
	objects int
}

// outcome is what a commit means for a deployment, as it was read before the render.
type outcome struct {
	deployment fleet.Deployment
	commit     string
	problem    string // why the commit means nothing at all: there is none
	parts      []part
}

type part struct {
	unit
	verdict
}

// units reads what has to be rendered for d.
func (w *worker) units(ctx context.Context, tx store.Tx, d fleet.Deployment) ([]unit, error) {
	if !d.Source.Templated() {
		return []unit{{source: d.Source, was: d.Rendered, problem: recorded(d)}}, nil
	}
	variants, err := tx.Deployments().Variants(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	var out []unit
	taken := map[string]bool{}
	for _, t := range targets {
		if !attached(t) || refused(t) || taken[t.Variant] {
			continue
		}
		agent, err := tx.Agents().Get(ctx, t.AgentTenant, t.AgentID)
		if err != nil {
			return nil, err
		}
		source, name, err := d.Source.For(agent)
		if err != nil || name != t.Variant {
			continue // relabelled a moment ago: whoever did that sees to it
		}
		taken[name] = true
		u := unit{variant: name, agent: agent.Name, source: source}
		if i := slices.IndexFunc(variants, func(v fleet.Variant) bool { return v.Name == name }); i >= 0 {
			u.was, u.problem = variants[i].Rendered, variants[i].Error
		}
		out = append(out, u)
	}
	return out, nil
}

// judge finds out what a commit means for a deployment. An error is ours (Git, disk); a user's
// mistake is in the outcome. fresh looks anew even at what was looked at before.
func (w *worker) judge(ctx context.Context, d fleet.Deployment, ref gitsource.Ref, trees *forest, fresh bool) (outcome, error) {
	out := outcome{deployment: d, commit: ref.Commit}
	if ref.Err != nil {
		out.problem = ref.Err.Error()
		return out, nil
	}
	tree, err := trees.at(ctx, ref.Commit)
	if err != nil {
		return outcome{}, err
	}
	var units []unit
	err = w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		units, err = w.units(ctx, tx, d)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	for _, u := range units {
		v, err := w.judgeUnit(ctx, d, u, tree, fresh)
		if err != nil {
			return outcome{}, err
		}
		out.parts = append(out.parts, part{u, v})
	}
	return out, nil
}

func (w *worker) judgeUnit(ctx context.Context, d fleet.Deployment, u unit, tree filetree.Tree, fresh bool) (verdict, error) {
	req := render.Request{
		Path: u.source.Path, Globs: u.source.Globs, Namespace: d.Namespace, AllowEmpty: d.Policy.AllowEmpty,
		Variables: u.source.Variables, Limits: w.svc.cfg.RenderLimits,
	}
	// A missing folder has no ID; render says so in the user's words.
	folder, _ := tree.ID(ctx, u.source.Path)
	input := fmt.Sprintf("%q %q %q %t %q", req.Path, req.Globs, req.Namespace, req.AllowEmpty, req.Variables)
	last, ok := w.seen[unitKey{d.ID, u.variant}]
	if ok && !fresh && folder != "" && last.folder == folder && last.input == input && (last.problem != "" || last.key == u.was.Key) {
		return last, nil
	}
	v, err := w.look(ctx, u, tree, req)
	v.folder, v.input = folder, input
	return v, err
}

// look renders what has to be rendered.
func (w *worker) look(ctx context.Context, u unit, tree filetree.Tree, req render.Request) (verdict, error) {
	key, err := render.Key(ctx, tree, req)
	if err == nil && key == u.was.Key && u.was.Digest != "" {
		return verdict{key: key, digest: u.was.Digest}, nil
	}
	var result *packed
	if err == nil {
		result, err = w.renderOne(ctx, tree, req)
	}
	switch {
	case err == nil:
		return verdict{key: key, digest: result.digest, packed: result}, nil
	case render.IsUserError(err):
		return verdict{key: key, problem: err.Error()}, nil
	default:
		return verdict{}, err
	}
}

func (w *worker) renderOne(ctx context.Context, tree filetree.Tree, req render.Request) (out *packed, err error) {
	release, err := w.svc.sources.renders.take(ctx, w.tenant)
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

// forest holds the trees that one look at a repository needs, each made once.
type forest struct {
	git    Git
	access gitsource.Access
	trees  map[string]filetree.Tree
}

func newForest(git Git, access gitsource.Access) *forest {
	return &forest{git: git, access: access, trees: map[string]filetree.Tree{}}
}

func (f *forest) at(ctx context.Context, commit string) (filetree.Tree, error) {
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

// A transaction holds up every other writer: what one writes is bounded in deployments, in targets
// (as if all deployments had equally many) and in bytes.
const (
	chunkDeployments = 64
	chunkTargets     = 2000
	chunkBytes       = 8 << 20
)

// evaluateAll looks at every deployment whose revision was resolved and commits what changed.
func (w *worker) evaluateAll(ctx context.Context, todo work, refs map[string]gitsource.Ref) error {
	trees := newForest(w.svc.git, todo.access)
	limit, err := w.chunk(ctx)
	if err != nil {
		return err
	}
	var failed error
	var changed []outcome
	var bytes int
	for _, d := range todo.deployments {
		ref, ok := refs[d.Source.Revision]
		if !ok || !(todo.due.check || todo.due.concerns(d.Source.Revision) || todo.syncs(d)) { // not asked for
			continue
		}
		o, err := w.judge(ctx, d, ref, trees, false)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("deployment %q: %w", d.Name, err))
			continue
		}
		w.lookedAt(d)
		if o.needed() || todo.due.rewound {
			changed = append(changed, o)
			bytes += o.bytes()
		} else {
			w.keepVerdicts(o)
		}
		if len(changed) >= limit || bytes >= chunkBytes {
			if err := w.commit(ctx, changed, todo.due); err != nil {
				return err
			}
			changed, bytes = changed[:0], 0
		}
	}
	if err := w.commit(ctx, changed, todo.due); err != nil {
		return err
	}
	return failed
}

// chunk is how many deployments one transaction may change.
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

// keepVerdicts remembers what was found out, without the bundles: those are in the store.
func (w *worker) keepVerdicts(o outcome) {
	for _, p := range o.parts {
		v := p.verdict
		v.packed = nil
		w.seen[unitKey{o.deployment.ID, p.variant}] = v
	}
}
