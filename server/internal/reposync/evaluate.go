package reposync

import (
	"context"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// Unit is one render: a deployment, or one variant of it for all agents that share it.
type Unit struct {
	Variant string
	agent   string         // the name of one of its agents; "" without variants
	Source  fleet.Source   // the source for its agents
	Was     fleet.Rendered // its last render
	problem string         // the recorded problem of its newest revision
	pending bool           // it belongs to a spec that is not in force

	capabilities fleet.Capabilities // of its cluster, for a chart
}

type unitKey struct {
	deployment fleet.DeploymentID
	variant    string
	pending    bool
}

// evaluation is the result of evaluating a unit for one content of its folder.
type evaluation struct {
	input   string           // dependencies other than the tree
	folder  string           // ID of the folder, the only dependency of plain manifests
	root    string           // ID of the whole tree; with equal inputs, equal IDs mean that nothing must be evaluated
	kind    fleet.SourceKind // SourceDetected if unknown
	key     string           // of the render
	digest  string           // of the result; "" when there is a problem
	problem string           // the user error, or ""
	reason  fleet.Reason     // identifies the problem
	reads   []string         // the read set up to the problem, if known: then key belongs to it
	packed  *packed          // nil if nothing new was rendered

	transient bool      // the problem may be transient
	reused    bool      // from an earlier commit, with unchanged dependencies
	touched   bool      // this commit may have changed what comes after the problem
	at        time.Time // time of the evaluation
}

// packed is a rendered revision in its stored form: compressed before the transaction, which blocks other
// writers.
type packed struct {
	digest  string
	content []byte
	size    int64
	objects int

	reads    []string
	volatile bool
	notes    []string
}

// outcome is the result of a commit for a deployment, as it was read before the render.
type outcome struct {
	deployment    fleet.Deployment
	commit        string
	problem       string       // why there is no commit
	problemReason fleet.Reason // identifies the problem
	parts         []part
	held          map[string]bool // variants that some agents keep although their capabilities have changed
	skipped       bool            // the spec in force was not evaluated
	pending       *pendingOutcome // the result for the pending spec; nil if there is none, or if it was not evaluated
}

type part struct {
	Unit
	evaluation
}

// evaluate evaluates a deployment at a commit. An error is internal (Git, disk); a user error is in the
// outcome. For a run it evaluates again even if nothing changed, and does not change the variants of the
// deployment: the commit may be an old one.
func (w *worker) evaluate(ctx context.Context, d fleet.Deployment, ref gitsource.Ref, trees *treeCache, run bool) (outcome, error) {
	o, err := w.evaluateOnce(ctx, d, ref, trees, run)
	if err != nil || run || !o.misshapen() {
		return o, err
	}
	shaped, same, err := w.reshape(ctx, o)
	if err != nil || !same {
		return outcome{deployment: d, commit: ref.Commit}, err // edited concurrently, which wakes the worker again
	}
	return w.evaluateOnce(ctx, shaped, ref, trees, run)
}

func (w *worker) evaluateOnce(ctx context.Context, d fleet.Deployment, ref gitsource.Ref, trees *treeCache, fresh bool) (outcome, error) {
	units := []Unit{soleUnit(d)}
	var held map[string]bool
	if d.Varies() && ref.Err == nil {
		read, err := trees.unitsOf(ctx, w, d)
		if err != nil {
			return outcome{}, err
		}
		units, held = read.units, read.held
	}
	out, err := w.evaluateUnits(ctx, d, units, ref, trees, fresh)
	out.held = held
	return out, err
}

// evaluateUnits evaluates the units of a deployment at a commit.
func (w *worker) evaluateUnits(ctx context.Context, d fleet.Deployment, units []Unit, ref gitsource.Ref, trees *treeCache, fresh bool) (outcome, error) {
	out := outcome{deployment: d, commit: ref.Commit}
	if ref.Err != nil {
		out.problem, out.problemReason = ref.Err.Error(), revisionReason(ref.Err)
		return out, nil
	}
	tree, err := trees.at(ctx, ref.Commit)
	if err != nil {
		return outcome{}, err
	}
	for _, u := range units {
		v, err := w.evaluateUnit(ctx, d, u, tree, fresh)
		if err != nil {
			return outcome{}, err
		}
		out.parts = append(out.parts, part{u, v})
	}
	return out, nil
}

// detected returns the kind of the parts, for the deployment as a whole: with one chart, it depends on the
// capabilities of clusters. A broken part does not end a chart: its folder may be back with the next commit,
// and then its volatility must still be known.
func (o outcome) detected() fleet.SourceKind {
	if o.deployment.Source.Kind != fleet.SourceDetected {
		return fleet.SourceDetected
	}
	broken := func(p part) bool { return p.evaluation.problem != "" && p.kind != fleet.SourceHelm }
	if o.deployment.Chart() && slices.ContainsFunc(o.parts, broken) {
		return o.deployment.Detected
	}
	out := fleet.SourceDetected
	for _, p := range o.parts {
		if out == fleet.SourceDetected || p.kind == fleet.SourceHelm {
			out = p.kind
		}
	}
	if out == fleet.SourceDetected {
		return o.deployment.Detected // nothing new is known
	}
	return out
}

// misshapen reports whether the deployment needs other variants: a folder became a chart or ceased to be one,
// or a volatile chart that some agents had kept is rendered anyway.
func (o outcome) misshapen() bool {
	now := o.deployment
	now.Detected = o.detected()
	return now.Chart() != o.deployment.Chart() || slices.ContainsFunc(o.parts, func(p part) bool { return p.packed != nil && o.held[p.Variant] })
}
