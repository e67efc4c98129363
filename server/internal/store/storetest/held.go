package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// heldAreListed pages through the held objects of one deployment on two agents, one at a time, and checks that
// it gets neither other objects nor those of another deployment.
func heldAreListed(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	agent, other := newAgent(w.tenant.ID, "aaa-first"), newDeployment(w, "other")
	first, foreign := newTarget(w, w.deployment, agent), newTarget(w, other, w.agent)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Agents().Create(ctx, agent); err != nil {
			return err
		}
		if err := tx.Deployments().Create(ctx, other); err != nil {
			return err
		}
		if err := tx.Targets().Create(ctx, first); err != nil {
			return err
		}
		return tx.Targets().Create(ctx, foreign)
	})
	held := func(group, kind, namespace, name string) fleet.ObjectStatus {
		o := newObject(group, kind, namespace, name, "held: 12 of 20 objects would be deleted")
		o.Sync = fleet.SyncHeld
		return o
	}
	a, b, c := held("", "ConfigMap", "shop", "a"), held("apps", "ConfigMap", "shop", "a"), held("", "Namespace", "", "shop")
	for _, x := range []struct {
		target fleet.Target
		agent  fleet.AgentID
		held   []fleet.ObjectStatus
	}{{first, agent.ID, []fleet.ObjectStatus{b, a}}, {w.target, w.agent.ID, []fleet.ObjectStatus{c}}, {foreign, w.agent.ID, []fleet.ObjectStatus{a}}} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Targets().SetObserved(ctx, w.tenant.ID, []store.AgentReport{{Agent: x.agent, Report: store.Report{
				Target: x.target.ID, Observed: x.target.Observed, Full: true, Objects: append(x.held, newObject("", "Service", "shop", "web", "")),
			}}})
			return err
		})
	}
	want := []store.HeldObject{
		{Target: first.ID, Agent: agent.Name, ObjectStatus: a},
		{Target: first.ID, Agent: agent.Name, ObjectStatus: b},
		{Target: w.target.ID, Agent: w.agent.Name, ObjectStatus: c},
	}
	var got []store.HeldObject
	for after := (store.HeldObject{}); ; {
		page := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.HeldObject, error) {
			return tx.Targets().Held(ctx, w.tenant.ID, w.deployment.ID, after, 1)
		})
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), page[0]
	}
	same(t, "held, page by page", got, want)
	heldCounts := func(limit int) []store.HeldDeployment {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]store.HeldDeployment, error) {
			return tx.Targets().HeldByDeployment(ctx, w.tenant.ID, limit)
		})
	}
	byDeployment := []store.HeldDeployment{
		{Deployment: w.deployment.ID, Name: w.deployment.Name, Objects: 3, Targets: 2}, {Deployment: other.ID, Name: other.Name, Objects: 1, Targets: 1},
	}
	slices.SortFunc(byDeployment, func(a, b store.HeldDeployment) int { return strings.Compare(a.Name, b.Name) })
	same(t, "held by detached targets", heldCounts(10), nil)
	for _, x := range []fleet.Target{first, w.target, foreign} {
		x.DetachedAt = time.Time{}
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, x) })
	}
	same(t, "held by deployment", heldCounts(10), byDeployment)
	same(t, "the first of them", heldCounts(1), byDeployment[:1])
	counts := func() []store.KindCount {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]store.KindCount, error) {
			return tx.Targets().CountObjects(ctx, w.tenant.ID, w.deployment.ID)
		})
	}
	same(t, "objects by kind", counts(), []store.KindCount{
		{Kind: "ConfigMap", Objects: 1}, {Kind: "Namespace", Objects: 1}, {Kind: "Service", Objects: 2}, {Group: "apps", Kind: "ConfigMap", Objects: 1},
	})
	byTarget := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.HeldCount, error) {
		return tx.Targets().CountHeld(ctx, w.tenant.ID, []fleet.DeploymentID{w.deployment.ID, other.ID, fleet.NewDeploymentID()})
	})
	found := map[fleet.TargetID]store.HeldCount{}
	for _, n := range byTarget {
		found[n.Target] = n
	}
	same(t, "held by target", found, map[fleet.TargetID]store.HeldCount{
		first.ID:    {Deployment: w.deployment.ID, Target: first.ID, Count: 2},
		w.target.ID: {Deployment: w.deployment.ID, Target: w.target.ID, Count: 1},
		foreign.ID:  {Deployment: other.ID, Target: foreign.ID, Count: 1},
	})
	same(t, "held by a tombstone that releases", tombstoned(t, s, w, false), nil)
	same(t, "held by a tombstone until it is confirmed", tombstoned(t, s, w, true), []store.HeldCount{{Deployment: w.deployment.ID, Target: w.target.ID, Count: 1}})
	same(t, "held by deployment, with a tombstone", heldCounts(10), byDeployment)
	first.DetachedAt = at(50)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().SetPlace(ctx, first) })
	same(t, "objects by kind of attached targets", counts(), []store.KindCount{{Kind: "Namespace", Objects: 1}, {Kind: "Service", Objects: 1}})
}

// tombstoned makes a tombstone of the target of a world, and returns what it holds.
func tombstoned(t *testing.T, s store.Store, w *world, hold bool) (out []store.HeldCount) {
	desired := w.target.Desired
	desired.Tombstone, desired.HoldProtected, desired.Detached = true, hold, false
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetDesired(ctx, w.tenant.ID, w.target.ID, desired)
	})
	counts := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.HeldCount, error) {
		return tx.Targets().CountHeld(ctx, w.tenant.ID, []fleet.DeploymentID{w.deployment.ID})
	})
	listed := 0
	for _, h := range read(t, s, func(ctx context.Context, tx store.Tx) ([]store.HeldDeployment, error) {
		return tx.Targets().HeldByDeployment(ctx, w.tenant.ID, 10)
	}) {
		if h.Deployment == w.deployment.ID {
			listed = h.Objects
		}
	}
	total := 0
	for _, n := range counts {
		total += n.Count
		if n.Target == w.target.ID {
			out = append(out, n)
		}
	}
	if listed != total {
		t.Errorf("%d are listed by deployment, and %d are counted", listed, total)
	}
	return out
}
