package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var targetTests = map[string]func(*testing.T, store.Store){
	"are one per deployment and agent":          targetsAreUnique,
	"are listed by deployment and by agent":     targetListings,
	"take what is desired":                      targetDesired,
	"leave with their objects":                  targetRemoval,
	"are read with their names after all fills": targetsAreWhole,
}

func targetsAreWhole(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	same(t, "target", getTarget(t, s, w), w.target)
}

func getTarget(t *testing.T, s store.Store, w *world) fleet.Target {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.tenant.ID, w.target.ID)
	})
}

func targetsAreUnique(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().Create(ctx, newTarget(w, w.deployment, w.agent))
	})
	spoil := map[string]func(*fleet.Target){
		"agent":      func(x *fleet.Target) { x.AgentID = fleet.NewAgentID() },
		"deployment": func(x *fleet.Target) { x.DeploymentID = fleet.NewDeploymentID() },
	}
	for _, fn := range spoil {
		x := newTarget(w, w.deployment, w.agent)
		fn(&x)
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Targets().Create(ctx, x) })
	}
}

func targetListings(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	agent, deployment := newAgent(w.tenant.ID, "edge-0"), newDeployment(w, "blog")
	var more []fleet.Target // blog on edge-0, blog on edge-1, shop on edge-0
	for _, d := range []fleet.Deployment{deployment, w.deployment} {
		for _, a := range []fleet.Agent{agent, w.agent} {
			if d.ID == w.deployment.ID && a.ID == w.agent.ID {
				continue
			}
			x := newTarget(w, d, a)
			x.DeploymentName, x.AgentName = d.Name, a.Name
			more = append(more, x)
		}
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Agents().Create(ctx, agent); err != nil {
			return err
		}
		if err := tx.Deployments().Create(ctx, deployment); err != nil {
			return err
		}
		for i := range more {
			if err := tx.Targets().Create(ctx, more[len(more)-1-i]); err != nil {
				return err
			}
		}
		return nil
	})
	type listing = func(context.Context, store.Targets) ([]fleet.Target, error)
	byDeployments := func(ids ...fleet.DeploymentID) listing {
		return func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.ListByDeployments(ctx, w.tenant.ID, ids)
		}
	}
	cases := []struct {
		reason string
		list   listing
		want   []fleet.Target
	}{
		{"a deployment's come by agent", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.OfDeployment(ctx, w.tenant.ID, w.deployment.ID)
		}, []fleet.Target{more[2], w.target}},
		{"an agent's come by deployment", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.OfAgent(ctx, w.tenant.ID, w.agent.ID)
		}, []fleet.Target{more[1], w.target}},
		{"many deployments come by both", byDeployments(w.deployment.ID, deployment.ID),
			[]fleet.Target{more[0], more[1], more[2], w.target}},
		{"deployments that have none add none", byDeployments(fleet.NewDeploymentID(), deployment.ID), more[:2]},
		{"no deployments have no targets", byDeployments(), nil},
	}
	for _, c := range cases {
		same(t, c.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return c.list(ctx, tx.Targets())
		}), c.want)
	}
	same(t, "counts", read(t, s, func(ctx context.Context, tx store.Tx) (map[fleet.AgentID]int, error) {
		return tx.Targets().CountByAgent(ctx, w.tenant.ID)
	}), map[fleet.AgentID]int{agent.ID: 2, w.agent.ID: 2})
}

func targetDesired(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	want := w.target
	want.Desired = fleet.Desired{Version: fleet.Version{Epoch: 2, Generation: 1}, Tombstone: true, Policy: fleet.Policy{AllowEmpty: true}}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetDesired(ctx, w.tenant.ID, w.target.ID, want.Desired)
	})
	same(t, "target", getTarget(t, s, w), want)
	same(t, "changes", since(t, s, before), []store.Change{{
		TenantID: w.tenant.ID, Kind: store.ChangeDesired, ID: string(w.target.ID), AgentID: w.agent.ID, DeploymentID: w.deployment.ID}})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetDesired(ctx, w.tenant.ID, fleet.NewTargetID(), want.Desired)
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetDesired(ctx, w.tenant.ID, w.target.ID, fleet.Desired{Digest: "sha256:unknown"})
	})
	same(t, "after what was refused", getTarget(t, s, w), want)
}

func targetRemoval(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	remove := func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().Remove(ctx, w.tenant.ID, w.target.ID)
	}
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{{
		TenantID: w.tenant.ID, Kind: store.ChangeDesired, ID: string(w.target.ID), AgentID: w.agent.ID, DeploymentID: w.deployment.ID}})
	same(t, "objects", getObjects(t, s, w), nil)
	refuse(t, s, store.ErrNotFound, remove)
}
