package reposync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/wire"
)

// request returns the render request for a unit of d.
func (w *worker) request(d fleet.Deployment, u Unit) render.Request {
	return render.Request{
		Kind: u.Source.Kind, Path: u.Source.Path, Globs: u.Source.Globs, Namespace: d.Namespace, AllowEmpty: d.Policy.AllowEmpty,
		Variables: u.Source.Variables, Limits: w.svc.cfg.RenderLimits,
		Owner: string(d.TenantID), Release: releaseOf(d.Name), Helm: u.Source.Helm, Capabilities: u.capabilities,
	}
}

func (w *worker) evaluateUnit(ctx context.Context, d fleet.Deployment, u Unit, tree filetree.Tree, fresh bool) (evaluation, error) {
	req := w.request(d, u)
	// A missing folder has no ID; render returns the error for users.
	folder, _ := tree.ID(ctx, u.Source.Path)
	root, err := tree.ID(ctx, ".")
	if err != nil {
		return evaluation{}, err
	}
	input := fmt.Sprintf("%q %q %q %q %t %q %q %q %q %t %q %q", req.Kind, req.Path, req.Globs, req.Namespace, req.AllowEmpty, req.Variables,
		req.Helm.ReleaseName, req.Helm.ValuesFiles, req.Helm.Values, req.Helm.SkipCRDs, req.Helm.Set, req.Capabilities.Hash())
	last, ok := w.lastEvaluation(unitKey{d.ID, u.Variant, u.pending})
	if ok && !fresh && last.input == input && (last.problem != "" || last.key == u.Was.Key) &&
		!(last.transient && w.svc.cfg.Now().Sub(last.at) > transientFor) {
		covers, err := last.covers(ctx, tree, req, root, folder)
		if covers || err != nil {
			last.touched = last.mayWantMore(root, folder)
			last.folder, last.root, last.reused = folder, root, true
			return last, err
		}
	}
	v, err := w.renderUnit(ctx, u, tree, req)
	v.folder, v.root, v.input, v.at = folder, root, input, w.svc.cfg.Now()
	return v, err
}

// covers reports whether a tree has the same content as that of the evaluation, as far as it was read.
func (v evaluation) covers(ctx context.Context, tree filetree.Tree, req render.Request, root, folder string) (bool, error) {
	if v.root == root || v.kind == fleet.SourcePlain && folder != "" && v.folder == folder {
		return true, nil
	}
	if len(v.reads) == 0 {
		return false, nil
	}
	key, err := render.Key(ctx, tree, req, v.reads)
	if render.IsUserError(err) { // a new one
		return false, nil
	}
	return key == v.key, err
}

// mayWantMore reports whether a tree may differ from that of an evaluation with a problem in a part that was
// not read because of the problem. A kustomization may refer to any folder of the repository.
func (v evaluation) mayWantMore(root, folder string) bool {
	if v.problem == "" {
		return false
	}
	if v.kind == fleet.SourceKustomize || v.kind == fleet.SourceDetected {
		return v.root != root
	}
	return v.folder != folder
}

// renderUnit renders a unit if necessary.
func (w *worker) renderUnit(ctx context.Context, u Unit, tree filetree.Tree, req render.Request) (evaluation, error) {
	v := evaluation{kind: req.Kind}
	err := w.renderChanged(ctx, u, tree, req, &v)
	if !render.IsUserError(err) {
		return v, err
	}
	var mistake *render.Error
	broken := evaluation{kind: v.kind, problem: err.Error(), reason: renderReason(err), transient: errors.As(err, &mistake) && mistake.Transient}
	var failed *render.Failed
	if errors.As(err, &failed) && textBytes(failed.Reads) <= maxFailedReads {
		broken.reads = failed.Reads
		broken.key, err = render.Key(ctx, tree, req, failed.Reads)
		return broken, err
	}
	return broken, nil
}

// maxFailedReads limits the remembered read set of a failed build, in bytes. With a larger one, it is built
// again for every commit.
const maxFailedReads = 256 << 10

func textBytes(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t)
	}
	return n
}

func (w *worker) renderChanged(ctx context.Context, u Unit, tree filetree.Tree, req render.Request, v *evaluation) (err error) {
	if v.kind == fleet.SourceDetected {
		if v.kind, err = render.Detect(ctx, tree, req.Path, req.Globs); err != nil {
			return err
		}
	}
	known := req
	if u.Was.Volatile {
		known.Capabilities = fleet.Capabilities{} // capabilities alone are no reason to render it again
	}
	if v.key, err = render.Key(ctx, tree, known, u.Was.Reads); err != nil {
		return err
	}
	if v.key != "" && v.key == u.Was.Key && u.Was.Digest != "" {
		v.digest = u.Was.Digest
		return nil
	}
	var result *packed
	var key string
	if v.kind == fleet.SourcePlain && v.key != "" {
		result, key, err = w.renderPlain(ctx, v.key, tree, req)
	} else {
		result, key, err = w.renderOne(ctx, tree, req)
	}
	if err != nil {
		return err
	}
	v.key, v.digest, v.packed = key, result.digest, result
	return nil
}

func (w *worker) renderOne(ctx context.Context, tree filetree.Tree, req render.Request) (out *packed, key string, err error) {
	release, err := w.svc.renders.Acquire(ctx, string(w.tenant))
	if err != nil {
		return nil, "", err
	}
	defer release()
	defer func() {
		// A panic of a parser must not stop the server: the file would still be in Git after a restart.
		if p := recover(); p != nil {
			w.log.Error("rendering panicked", "path", req.Path, "panic", p)
			out, err = nil, &render.Error{Path: req.Path, Problem: "a file cannot be read: the parser failed"}
		}
	}()
	result, err := render.Render(ctx, tree, req, w.svc.builder)
	if err != nil {
		return nil, "", err
	}
	out = &packed{objects: result.Set.Len(), reads: result.Reads, volatile: result.Volatile, notes: result.Notes}
	out.digest, out.content, out.size = result.Set.Pack()
	if out.size > wire.MaxBundleContent {
		return nil, "", &render.Error{Path: req.Path, Problem: fmt.Sprintf(
			"its objects have %d bytes in total, but agents accept %d: split the deployment", out.size, wire.MaxBundleContent)}
	}
	return out, result.Key, nil
}

func (w *worker) lastEvaluation(key unitKey) (evaluation, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.seen[key]
	return v, ok
}

// transientFor is how long a possibly transient problem counts: a server must not spend all its time on an
// endless render.
const transientFor = 5 * time.Minute

// rememberEvaluations remembers evaluations without their bundles, which are in the store.
func (w *worker) rememberEvaluations(o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := o.parts
	if o.pending != nil {
		parts = slices.Concat(parts, o.pending.parts)
	}
	for _, p := range parts {
		v := p.evaluation
		v.packed = nil
		w.seen[unitKey{o.deployment.ID, p.Variant, p.pending}] = v
	}
}

// releaseOf returns the default Helm release name of a deployment: without the agent, because names of objects
// start with it and many must not contain dots.
func releaseOf(deployment string) string {
	return deployment[strings.LastIndexByte(deployment, '.')+1:]
}
