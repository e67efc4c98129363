package reposync

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// units reads the units of d, and which of its variants are kept by agents with changed capabilities, see
// keepsVariant.
func (w *worker) units(ctx context.Context, tx store.Tx, d fleet.Deployment) (out []Unit, held map[string]bool, err error) {
	read, err := w.unitsIn(ctx, tx, []fleet.Deployment{d})
	if err != nil {
		return nil, nil, err
	}
	u := read[d.ID]
	return u.units, u.held, u.err
}

// unitRead is the result of units for one deployment. Its error affects only that deployment.
type unitRead struct {
	units []Unit
	held  map[string]bool
	err   error
}

// readUnits is units for many deployments, in one transaction and with as many queries as for one. Deployments
// without variants are absent: their unit needs no query.
func (w *worker) readUnits(ctx context.Context, deployments []fleet.Deployment) (out map[fleet.DeploymentID]unitRead, err error) {
	varying := slices.DeleteFunc(slices.Clone(deployments), func(d fleet.Deployment) bool { return !d.Varies() })
	if len(varying) == 0 {
		return nil, nil
	}
	err = w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = w.unitsIn(ctx, tx, varying)
		return err
	})
	return out, err
}

func (w *worker) unitsIn(ctx context.Context, tx store.Tx, deployments []fleet.Deployment) (map[fleet.DeploymentID]unitRead, error) {
	out := make(map[fleet.DeploymentID]unitRead, len(deployments))
	var ids []fleet.DeploymentID
	for _, d := range deployments {
		if d.Varies() {
			ids = append(ids, d.ID)
		} else {
			out[d.ID] = unitRead{units: []Unit{soleUnit(d)}}
		}
	}
	if len(ids) == 0 {
		return out, nil
	}
	variants, err := tx.Deployments().VariantsOf(ctx, w.tenant, ids)
	if err != nil {
		return nil, err
	}
	targets, err := tx.Targets().OfDeployments(ctx, w.tenant, ids)
	if err != nil {
		return nil, err
	}
	finders := make([]*unitFinder, 0, len(ids))
	var asked []fleet.Target
	for _, d := range deployments {
		if d.Varies() {
			f := w.newUnitFinder(tx, d, variants[d.ID], targets[d.ID])
			finders, asked = append(finders, f), append(asked, f.first...)
		}
	}
	agents, err := listing.FindAgents(ctx, tx, asked)
	if err != nil {
		return nil, err
	}
	for _, f := range finders {
		f.agents = agents
		out[f.d.ID] = f.read(ctx)
	}
	return out, nil
}

// soleUnit returns the unit of a deployment without variants.
func soleUnit(d fleet.Deployment) Unit {
	return Unit{Source: d.Source, Was: d.Rendered, problem: rollout.SourceError(d)}
}

// unitFinder is one use of units.
type unitFinder struct {
	w           *worker
	tx          store.Tx
	d           fleet.Deployment
	known       map[string]fleet.Variant
	held, taken map[string]bool // by variant
	first, rest []fleet.Target  // see representatives
	agents      map[fleet.AgentID]fleet.Agent
	out         []Unit
}

func (w *worker) newUnitFinder(tx store.Tx, d fleet.Deployment, variants []fleet.Variant, targets []fleet.Target) *unitFinder {
	f := &unitFinder{w: w, tx: tx, d: d, known: make(map[string]fleet.Variant, len(variants)), held: map[string]bool{}, taken: map[string]bool{}}
	for _, v := range variants {
		f.known[v.Name] = v
	}
	f.first, f.rest = f.representatives(targets)
	return f
}

func (f *unitFinder) read(ctx context.Context) unitRead {
	if err := f.add(ctx, f.first); err != nil {
		return unitRead{err: err}
	}
	rest := slices.DeleteFunc(f.rest, func(t fleet.Target) bool { return f.taken[t.Variant] })
	if err := f.add(ctx, rest); err != nil {
		return unitRead{err: err}
	}
	return unitRead{units: f.out, held: f.held}
}

// representatives returns targets whose agents determine the variants: one of each variant, and of a volatile
// chart all, because each may keep its variant. The rest is needed if that one was relabeled concurrently.
func (f *unitFinder) representatives(targets []fleet.Target) (first, rest []fleet.Target) {
	found := map[string]bool{}
	for _, t := range targets {
		switch {
		case !rollout.Attached(t) || rollout.Refused(t):
		case !found[t.Variant] || f.known[t.Variant].Rendered.Volatile:
			found[t.Variant] = true
			first = append(first, t)
		default:
			rest = append(rest, t)
		}
	}
	return first, rest
}

// add finds the units of some targets.
func (f *unitFinder) add(ctx context.Context, targets []fleet.Target) error {
	agents, err := listing.AgentsOf(ctx, f.tx, targets, f.agents)
	if err != nil {
		return err
	}
	for _, t := range targets {
		agent := agents[t.AgentID]
		source, name, err := f.d.For(agent)
		if err != nil || name != t.Variant && !fleet.SameButCapabilities(name, t.Variant) {
			continue // relabeled just now: that change handles it
		}
		f.held[t.Variant] = f.held[t.Variant] || name != t.Variant
		if f.taken[t.Variant] {
			continue
		}
		f.taken[t.Variant] = true
		u := Unit{Variant: t.Variant, agent: agent.Name, Source: source}
		if u.capabilities, err = f.w.capabilities(ctx, f.tx, f.d, agent); err != nil {
			return err
		}
		u.Was, u.problem = f.known[t.Variant].Rendered, f.known[t.Variant].Error
		f.out = append(f.out, u)
	}
	return nil
}

// capabilities returns those of the cluster of an agent, as far as d uses them.
func (w *worker) capabilities(ctx context.Context, tx store.Tx, d fleet.Deployment, agent fleet.Agent) (fleet.Capabilities, error) {
	if !d.Chart() || agent.Capabilities == "" {
		return fleet.Capabilities{}, nil
	}
	if known, ok := w.svc.capabilities.get(agent.Capabilities); ok {
		return known, nil
	}
	c, err := tx.Agents().Capabilities(ctx, agent.TenantID, agent.Capabilities)
	if err == nil {
		w.svc.capabilities.put(agent.Capabilities, c)
	}
	return c, err
}

// reshape gives the deployment of an outcome its required variants. Its targets keep their state until those
// are rendered. same is false if it was edited or deleted concurrently.
func (w *worker) reshape(ctx context.Context, o outcome) (d fleet.Deployment, same bool, err error) {
	err = w.svc.store.Update(ctx, func(tx store.Tx) error {
		if d, same, err = w.current(ctx, tx, o.deployment); err != nil || !same {
			return err
		}
		d.Detected = o.detected()
		if err := tx.Deployments().SetDetected(ctx, d.TenantID, d.ID, d.Detected); err != nil {
			return err
		}
		if err := w.release(ctx, tx, d); err != nil {
			return err
		}
		return w.svc.placer.Place(ctx, tx, d)
	})
	if err != nil {
		return fleet.Deployment{}, false, fmt.Errorf("changing the variants of deployment %q: %w", o.deployment.Name, err)
	}
	return d, same, nil
}

// release moves targets that keep a variant to the variant for their current capabilities, because the kept one
// is no longer the newest.
func (w *worker) release(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil || !d.Chart() {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t fleet.Target) bool { return !rollout.Attached(t) || rollout.Refused(t) })
	agents, err := listing.AgentsOf(ctx, tx, targets, nil)
	if err != nil {
		return err
	}
	for _, t := range targets {
		_, name, err := d.For(agents[t.AgentID])
		if err != nil || name == t.Variant || !fleet.SameButCapabilities(name, t.Variant) {
			continue
		}
		t.Variant = name
		if err := tx.Targets().SetPlace(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
