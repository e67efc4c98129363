package reposync

import (
	"context"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// Unit is what is rendered once: a deployment, or one variant of it for all agents that share it.
type Unit struct {
	Variant string
	agent   string         // the name of one agent that it is for; "" without variants
	Source  fleet.Source   // as it is for its agents
	Was     fleet.Rendered // what it was last rendered to
	problem string         // why its newest revision could not be used, as it is recorded
	pending bool           // it is of a spec that is not in force

	capabilities fleet.Capabilities // of its cluster, for a chart
}

type unitKey struct {
	deployment fleet.DeploymentID
	variant    string
	pending    bool
}

// evaluation is what a worker found out about a unit at one content of its folder.
type evaluation struct {
	input   string           // what else than the tree it depends on
	folder  string           // ID of the folder, which is all that plain manifests depend on
	root    string           // ID of the whole tree; with equal inputs, equal IDs mean that nothing has to be looked at
	kind    fleet.SourceKind // SourceDetected when that could not be told
	key     string           // of the render
	digest  string           // of the result; "" when there is a problem
	problem string           // the user's mistake; "" when there is none
	reason  fleet.Reason     // identifies the problem
	reads   []string         // until there was a problem, when that is known: key is of these then
	packed  *packed          // nil when nothing new was rendered

	transient bool      // the problem may be gone another time
	reused    bool      // it was found out at an earlier commit, and nothing that it depends on has changed
	touched   bool      // this commit may have changed what comes after the problem
	at        time.Time // when it was found out
}

// packed is a rendered revision as it is stored: compressed before the transaction, which holds up
// every other writer.
type packed struct {
	digest  string
	content []byte
	size    int64
	objects int

	reads    []string
	volatile bool
	notes    []string
}

// outcome is what a commit means for a deployment, as it was read before the render.
type outcome struct {
	deployment    fleet.Deployment
	commit        string
	problem       string       // why the commit means nothing at all: there is none
	problemReason fleet.Reason // identifies the problem
	parts         []part
	held          map[string]bool // variants that some agents keep though their clusters are capable of something else now
	skipped       bool            // nothing was found out about the spec in force
	pending       *pendingOutcome // what it means for the pending spec; nil when there is none, or it was not looked at
}

type part struct {
	Unit
	evaluation
}

// evaluate finds out what a commit means for a deployment. An error is ours (Git, disk); a user's
// mistake is in the outcome. For a run it looks anew even at what was looked at before, and leaves the
// shape of the deployment alone: the commit may be an old one.
func (w *worker) evaluate(ctx context.Context, d fleet.Deployment, ref gitsource.Ref, trees *treeCache, run bool) (outcome, error) {
	o, err := w.evaluateOnce(ctx, d, ref, trees, run)
	if err != nil || run || !o.misshapen() {
		return o, err
	}
	shaped, same, err := w.reshape(ctx, o)
	if err != nil || !same {
		return outcome{deployment: d, commit: ref.Commit}, err // edited meanwhile, which wakes the worker again
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

// evaluateUnits finds out what a commit means for the units of a deployment.
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

// detected is what the parts are made of, for the deployment as a whole: one chart among them makes it vary
// with what clusters are capable of. One that is broken says nothing about a chart's end: its folder may be back
// with the next commit, and then what is volatile must still be known.
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

// misshapen reports whether the deployment has other variants than what was found needs: a folder became a
// chart or ceased to be one, or a volatile chart that some agents had kept is rendered anyway.
func (o outcome) misshapen() bool {
	now := o.deployment
	now.Detected = o.detected()
	return now.Chart() != o.deployment.Chart() || slices.ContainsFunc(o.parts, func(p part) bool { return p.packed != nil && o.held[p.Variant] })
}
