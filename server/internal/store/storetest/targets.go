package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var targetTests = map[string]func(*testing.T, store.Store){
	"are one per deployment and agent":          targetsAreUnique,
	"are listed by deployment and by agent":     targetListings,
	"store the desired state":                   targetDesired,
	"are deleted with their objects":            targetRemoval,
	"are read with their names after all fills": targetsAreWhole,
	"are listed page by page":                   targetsArePaged,
	"change their placement":                    targetPlace,
	"may outlive their agents":                  targetsWithoutAgents,
	"are found by the name of a deleted agent":  targetsLeftBehind,
	"are listed with their held objects":        heldAreListed,
	"are listed when they are detached":         detachedAreListed,
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
		"grant":      func(x *fleet.Target) { x.GrantID = w.grant.ID }, // which is to another tenant
		"bundle":     func(x *fleet.Target) { x.Desired.Digest = "sha256:unknown" },
	}
	for what, fn := range spoil {
		free := newAgent(w.tenant.ID, "without-"+what)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, free) })
		x := newTarget(w, w.deployment, free)
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
	byID := func(ids ...fleet.TargetID) listing {
		return func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.List(ctx, w.tenant.ID, ids)
		}
	}
	two := []fleet.Target{more[0], w.target}
	if w.target.ID < more[0].ID {
		two = []fleet.Target{w.target, more[0]}
	}
	cases := []struct {
		reason string
		list   listing
		want   []fleet.Target
	}{
		{"those of a deployment are sorted by agent", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.OfDeployment(ctx, w.tenant.ID, w.deployment.ID)
		}, []fleet.Target{more[2], w.target}},
		{"those of an agent are sorted by deployment", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.OfAgentAllTenants(ctx, w.agent.ID)
		}, []fleet.Target{more[1], w.target}},
		{"some of an agent are sorted in the same way", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.GetAllTenants(ctx, w.agent.ID, []fleet.TargetID{w.target.ID, more[1].ID, more[2].ID})
		}, []fleet.Target{more[1], w.target}},
		{"none of an agent's are none", func(ctx context.Context, x store.Targets) ([]fleet.Target, error) {
			return x.GetAllTenants(ctx, w.agent.ID, nil)
		}, nil},
		{"selected ones are sorted by id", byID(w.target.ID, fleet.NewTargetID(), more[0].ID), two},
		{"none that are named are none", byID(), nil},
	}
	for _, c := range cases {
		same(t, c.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return c.list(ctx, tx.Targets())
		}), c.want)
	}
	same(t, "counts", read(t, s, func(ctx context.Context, tx store.Tx) (map[fleet.AgentID]int, error) {
		return tx.Targets().CountByAgentAllTenants(ctx, []fleet.AgentID{agent.ID, w.agent.ID, "agt-nowhere"})
	}), map[fleet.AgentID]int{agent.ID: 2, w.agent.ID: 2})
	same(t, "count", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return tx.Targets().Count(ctx, w.tenant.ID) }), 4)
}

func targetsArePaged(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	d := newDeployment(w, "wide")
	var want []fleet.TargetID
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Deployments().Create(ctx, d); err != nil {
			return err
		}
		for i := range 7 {
			// Agents with one name exist one after another: each is deleted before the next.
			a := newAgent(w.tenant.ID, fmt.Sprint("agent-", i/3))
			x := newTarget(w, d, a)
			want = append(want, x.ID)
			if err := errors.Join(tx.Agents().Create(ctx, a), tx.Targets().Create(ctx, x), tx.Agents().Delete(ctx, w.tenant.ID, a.ID)); err != nil {
				return err
			}
		}
		return nil
	})
	var got []fleet.TargetID
	page := store.Page{Limit: 2}
	for {
		rows := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return tx.Targets().PageOfDeployment(ctx, w.tenant.ID, d.ID, store.TargetFilter{Page: page})
		})
		if len(rows) == 0 {
			break
		}
		for _, x := range rows {
			got = append(got, x.ID)
		}
		page.After, page.AfterID = rows[len(rows)-1].AgentName, string(rows[len(rows)-1].ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	same(t, "all pages", got, want)
	rest := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
		return tx.Targets().PageOfDeployment(ctx, w.tenant.ID, d.ID, store.TargetFilter{Page: store.Page{After: "agent-1"}})
	})
	same(t, "after a name without an id", len(rest), 1)
}

func targetPlace(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	want := w.target
	want.Variant, want.DetachedAt, want.DetachedWhy, want.LeftIn = "", time.Time{}, "", ""
	want.Kinds, want.KindError = fleet.KindFilter{Exclude: []string{"Role.*"}}, ""
	want.AgentName = "another"
	moved := want
	moved.Desired, moved.Observed = fleet.Desired{}, fleet.Observed{} // which this does not write
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, moved) })
	same(t, "target", getTarget(t, s, w), want)
	same(t, "changes", since(t, s, before), []store.Change{{
		TenantID: w.tenant.ID, Kind: store.ChangeDesired, ID: string(w.target.ID), AgentID: w.agent.ID, DeploymentID: w.deployment.ID}})
	spoil := map[string]func(*fleet.Target){
		"itself":              func(x *fleet.Target) { x.ID = fleet.NewTargetID() },
		"grant":               func(x *fleet.Target) { x.GrantID = fleet.NewGrantID() },
		"grant of the tenant": func(x *fleet.Target) { x.GrantID = w.grant.ID }, // which is to another
	}
	for _, fn := range spoil {
		x := want
		fn(&x)
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, x) })
	}
}

func targetsWithoutAgents(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID) })
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeDesired, ID: string(w.target.ID), DeploymentID: w.deployment.ID}
	before := last(t, s)
	want := w.target
	want.AgentID, want.DetachedWhy, want.Desired = "", "agent deleted", fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 9}}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Targets().SetPlace(ctx, want), tx.Targets().SetDesired(ctx, w.tenant.ID, want.ID, want.Desired))
	})
	same(t, "target", getTarget(t, s, w), want)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		changed, err := observe(ctx, tx, w.tenant.ID, w.agent.ID, store.Report{Target: want.ID, Observed: fleet.Observed{Version: fleet.Version{Epoch: 9}}})
		same(t, "a report of the agent that it was on changes it", changed, false)
		return err
	})
	// An agent with the same name is another agent, and may get its own target.
	again := newAgent(w.tenant.ID, w.agent.Name)
	x := newTarget(w, w.deployment, again)
	x.DeploymentName = w.deployment.Name
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Create(ctx, again), tx.Targets().Create(ctx, x))
	})
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().Remove(ctx, w.tenant.ID, want.ID) })
	same(t, "targets", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
		return tx.Targets().OfDeployment(ctx, w.tenant.ID, w.deployment.ID)
	}), []fleet.Target{x})
	changes := since(t, s, before)
	same(t, "changes of the target", []store.Change{changes[0], changes[1], changes[4]}, []store.Change{record, record, record})
}

func targetsLeftBehind(t *testing.T, s store.Store) {
	w, guest := newWorld(t, s, "a"), newWorld(t, s, "b")
	second := newDeployment(w, "blog")
	mine := newTarget(w, second, w.agent)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Deployments().Create(ctx, second), tx.Targets().Create(ctx, mine))
	})
	same(t, "name of another tenant's agent", guest.agent.Name, w.agent.Name)
	found := func() []fleet.TargetID {
		t.Helper()
		out := []fleet.TargetID{}
		for _, x := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return tx.Targets().LeftBehindAllTenants(ctx, w.agent)
		}) {
			same(t, "agent", x.AgentID, "")
			out = append(out, x.ID)
		}
		return out
	}
	same(t, "while its agent is there", found(), []fleet.TargetID{})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID), tx.Agents().Delete(ctx, guest.tenant.ID, guest.agent.ID))
	})
	want := []fleet.TargetID{mine.ID, w.target.ID}
	if w.deployment.Name < second.Name {
		want = []fleet.TargetID{w.target.ID, mine.ID}
	}
	same(t, "left behind", found(), want)

	// An agent that is enrolled again gets one of them.
	again := newAgent(w.tenant.ID, w.agent.Name)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, again) })
	before := last(t, s)
	taken := w.target
	taken.AgentID = again.ID
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, taken) })
	same(t, "taken up", getTarget(t, s, w), taken)
	same(t, "changes", since(t, s, before), []store.Change{{
		TenantID: w.tenant.ID, Kind: store.ChangeDesired, ID: string(taken.ID), AgentID: again.ID, DeploymentID: w.deployment.ID}})
	same(t, "still left behind", found(), []fleet.TargetID{mine.ID})
	unproven := func() []fleet.Target {
		t.Helper()
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return tx.Targets().UnprovenAllTenants(ctx, again.ID)
		})
	}
	same(t, "to be recognised", unproven(), []fleet.Target{taken})
	taken.LeftIn = ""
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, taken) })
	same(t, "recognised", len(unproven()), 0)
	twice := newTarget(w, second, again)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().Create(ctx, twice) })
	mine.AgentID = again.ID
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, mine) })
	mine.AgentID = fleet.NewAgentID()
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, mine) })
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
	same(t, "after the refused change", getTarget(t, s, w), want)
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
