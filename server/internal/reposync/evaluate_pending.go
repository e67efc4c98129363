package reposync

import (
	"context"
	"errors"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pendingOutcome is the result of a commit for a spec that is not in force.
type pendingOutcome struct {
	outcome // for the deployment with the pending spec
	spec    fleet.PendingSpec
	failure error // why it could not be evaluated; not a user error
	refused bool  // it was refused at the last evaluation
	awaited bool  // a sync run waits for it
}

// promotable reports whether the spec can take effect: all of it is rendered.
func (p *pendingOutcome) promotable() bool {
	return p != nil && p.failure == nil && p.summary() == ""
}

// needed reports whether anything would be written. A transaction decides whether a refused spec is still
// refused.
func (p *pendingOutcome) needed() bool {
	if p == nil {
		return false
	}
	reason, problem := p.obstacle()
	return p.promotable() || p.awaited || reason != p.spec.Reason || problem != p.spec.Problem
}

// obstacle returns the problem of the source of a spec that is not promotable.
func (p *pendingOutcome) obstacle() (fleet.Reason, string) {
	if p.failure != nil {
		return fleet.ReasonSourceUnreadable, p.failure.Error()
	}
	return fleet.ReasonSourceNotRendered, p.summary()
}

// evaluateSpecs evaluates a deployment at the newest commits: its pending spec, if that uses this repository,
// and, unless it replaces it, its spec in force, if that does. A pending spec that cannot be read does not
// affect the spec in force; it is an outcome with a failure.
func (w *worker) evaluateSpecs(ctx context.Context, d fleet.Deployment, refs map[string]gitsource.Ref, trees *treeCache) []evaluatedOutcome {
	o := outcome{deployment: d, skipped: true}
	pending, err := w.evaluatePending(ctx, d, refs, trees)
	if err != nil {
		return []evaluatedOutcome{{o, err}}
	}
	ref, resolved := refs[d.Source.Revision]
	replaced := pending.promotable() && !pending.refused
	if d.RepositoryID == w.id && resolved && !replaced {
		o, err = w.evaluate(ctx, d, ref, trees, false)
		o.deployment.Name = d.Name
		if err != nil {
			o = outcome{deployment: d, skipped: true}
		}
	}
	o.pending = pending
	out := []evaluatedOutcome{{outcome: o}}
	if pending != nil {
		err = errors.Join(pending.failure, err)
	}
	if err != nil {
		out = append(out, evaluatedOutcome{o, err})
	}
	if pending == nil && o.skipped {
		return out[1:] // nothing was evaluated
	}
	return out
}

// evaluatePending evaluates the pending spec of d; nil if there is none. An error is one of the store.
func (w *worker) evaluatePending(ctx context.Context, d fleet.Deployment, refs map[string]gitsource.Ref, trees *treeCache) (*pendingOutcome, error) {
	if d.PendingSpecRevision == 0 {
		return nil, nil
	}
	out := &pendingOutcome{}
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		if out.spec, err = tx.PendingSpecs().Get(ctx, d.TenantID, d.ID); err != nil {
			return err
		}
		open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
		out.awaited = slices.ContainsFunc(open, rollout.NeedsGit)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // in force or withdrawn by now
	}
	ref, resolved := refs[out.spec.Source.Revision]
	if err != nil || out.spec.RepositoryID != w.id || !resolved {
		return nil, err
	}
	next := d.With(out.spec)
	if !d.Source.Equal(next.Source) {
		next.Detected = fleet.SourceDetected
	}
	if out.outcome, out.failure = w.evaluateNext(ctx, d, next, ref, trees); out.failure != nil {
		out.outcome = outcome{deployment: next, commit: ref.Commit}
	}
	if !out.promotable() {
		return out, nil
	}
	err = w.svc.store.View(ctx, func(tx store.Tx) error {
		refusal, err := w.refusalOf(ctx, tx, d, *out)
		out.refused = refusal != ""
		return err
	})
	return out, err
}

// evaluateNext evaluates the future d. Unlike evaluate it writes nothing: the detected kind is in the outcome.
func (w *worker) evaluateNext(ctx context.Context, d, next fleet.Deployment, ref gitsource.Ref, trees *treeCache) (outcome, error) {
	o, err := w.evaluateNextOnce(ctx, d, next, ref, trees)
	if err != nil || !o.misshapen() {
		return o, err
	}
	next.Detected = o.detected()
	return w.evaluateNextOnce(ctx, d, next, ref, trees)
}

func (w *worker) evaluateNextOnce(ctx context.Context, d, next fleet.Deployment, ref gitsource.Ref, trees *treeCache) (outcome, error) {
	var units []Unit
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		units, err = w.nextUnits(ctx, tx, d, next)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	return w.evaluateUnits(ctx, next, units, ref, trees, false)
}

// nextUnits returns the units of next, the future d: one for each variant of its future agents. The renders of
// d are known for them too: equal keys mean equal results.
func (w *worker) nextUnits(ctx context.Context, tx store.Tx, d, next fleet.Deployment) ([]Unit, error) {
	if !next.Varies() {
		return []Unit{{Source: next.Source, Was: d.Rendered, pending: true}}, nil
	}
	agents, has, err := nextAgents(ctx, tx, next)
	if err != nil {
		return nil, err
	}
	variants, err := tx.Deployments().Variants(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	known := make(map[string]fleet.Variant, len(variants))
	for _, v := range variants {
		known[v.Name] = v
	}
	var out []Unit
	taken := map[string]bool{}
	for _, agent := range agents {
		source, name, err := next.For(agent)
		if err != nil {
			continue // its target keeps its state and shows why
		}
		if keeps := known[has[agent.ID]]; fleet.SameButCapabilities(keeps.Name, name) && keeps.Rendered.Volatile && keeps.Rendered.Digest != "" && d.Source.Equal(next.Source) {
			name = keeps.Name // see keepsVariant
		}
		if taken[name] {
			continue
		}
		taken[name] = true
		u := Unit{Variant: name, agent: agent.Name, Source: source, Was: known[name].Rendered, problem: known[name].Error, pending: true}
		if u.capabilities, err = w.capabilities(ctx, tx, next, agent); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// nextAgents returns the agents of a deployment, independent of its current targets, and their variants.
func nextAgents(ctx context.Context, tx store.Tx, next fleet.Deployment) ([]fleet.Agent, map[fleet.AgentID]string, error) {
	dest, err := placement.DestinationOf(ctx, tx, next)
	if err != nil {
		return nil, nil, err
	}
	agents, err := placement.Candidates(ctx, tx, dest.Env)
	if err != nil {
		return nil, nil, err
	}
	targets, err := tx.Targets().OfDeployment(ctx, next.TenantID, next.ID)
	has := make(map[fleet.AgentID]string, len(targets))
	for _, t := range targets {
		has[t.AgentID] = t.Variant
	}
	return slices.DeleteFunc(agents, func(a fleet.Agent) bool { return !dest.Selects(a) }), has, err
}
