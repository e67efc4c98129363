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

// pendingOutcome is what a commit means for a spec that is not in force.
type pendingOutcome struct {
	outcome // of the deployment as the spec would make it
	spec    fleet.PendingSpec
	failure error // why it could not be looked at, which is not its user's mistake
	refused bool  // it could not come into force when it was looked at
	awaited bool  // a sync run waits for it
}

// promotable reports whether the spec can come into force: all of it is rendered.
func (p *pendingOutcome) promotable() bool {
	return p != nil && p.failure == nil && p.summary() == ""
}

// needed reports whether anything would be written. Whether a spec that was refused still is, is for a transaction
// to say.
func (p *pendingOutcome) needed() bool {
	if p == nil {
		return false
	}
	reason, problem := p.obstacle()
	return p.promotable() || p.awaited || reason != p.spec.Reason || problem != p.spec.Problem
}

// obstacle is what is wrong with the source of a spec that is not promotable.
func (p *pendingOutcome) obstacle() (fleet.PendingReason, string) {
	if p.failure != nil {
		return fleet.PendingUnreadable, p.failure.Error()
	}
	return fleet.PendingUnrendered, p.summary()
}

// evaluateSpecs finds out what the newest commits mean for a deployment: for its pending spec, if that is of this
// repository, and, unless that can replace it, for its spec in force, if that is. A pending spec that cannot be
// read takes nothing from the spec in force; it is an outcome, and a failure beside it.
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
		return out[1:] // nothing was found out
	}
	return out
}

// evaluatePending is evaluate for the pending spec of d; nil when there is none to look at. An error is of the store.
func (w *worker) evaluatePending(ctx context.Context, d fleet.Deployment, refs map[string]gitsource.Ref, trees *treeCache) (*pendingOutcome, error) {
	if d.PendingSpec == 0 {
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

// evaluateNext looks at what d shall become. Unlike evaluate it writes nothing: what it finds out of the shape of the
// source is in the outcome.
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

// nextUnits are what has to be rendered for d when it becomes next: one for each variant of the agents that it goes to
// then. What d has rendered is known for them, too: equal keys mean equal results.
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
			continue // its target keeps what it has, and says why
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

// nextAgents are the agents that a deployment goes to, whatever targets it has now, and the variants that it has on them.
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
