package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var engineUpgradeTests = map[string]func(*testing.T, store.Store){
	"are listed by name":              upgradesAreListed,
	"move on one step at a time":      upgradesMoveOn,
	"are trimmed when they are done":  upgradesTrim,
	"keep the revision of a way back": upgradesKeepRevisions,
}

// engineUpgradeCalls are the calls about upgrades of Argo CD.
var engineUpgradeCalls = []call{
	{"EngineUpgrades.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		u := newEngineUpgrade(w, "new")
		u.TenantID = tenant
		return nil, tx.EngineUpgrades().Create(ctx, u)
	}},
	{"EngineUpgrades.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.EngineUpgrades().Get(ctx, tenant, w.upgrade.ID)
	}},
	{"EngineUpgrades.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.EngineUpgrades().ByName(ctx, tenant, w.upgrade.Name)
	}},
	{"EngineUpgrades.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.EngineUpgrades().List(ctx, tenant, store.Page{})
	}},
	{"EngineUpgrades.Open", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.EngineUpgrades().Open(ctx, tenant)
	}},
	{"EngineUpgrades.OpenAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.EngineUpgrades().OpenAllTenants(ctx)
	}},
	{"EngineUpgrades.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		u := w.upgrade
		u.TenantID, u.Message = tenant, "mallory"
		return nil, tx.EngineUpgrades().Update(ctx, u)
	}},
	{"EngineUpgrades.Trim", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.EngineUpgrades().Trim(ctx, tenant, 0)
	}},
}

// newEngineUpgrade has no field that is zero but FinishedAt.
func newEngineUpgrade(w *world, name string) fleet.EngineUpgrade {
	instance := fleet.EngineUpgradeInstance{
		AgentID: w.agent.ID, Agent: w.agent.Name, DeploymentID: w.deployment.ID, Deployment: w.deployment.Name, CanaryID: "dep-canary", Canary: "canary",
		Phase: fleet.EngineInstanceRollingBack, Reason: fleet.ReasonEngineInstallFailed, Message: "no such tag", Before: 99, BeforeCommit: "c0ffee",
		Commit: "beef", RunID: "run-1", CanaryAfter: fleet.Version{Epoch: 1, Generation: 4}, Deadline: at(90), StartedAt: at(10), FinishedAt: at(11),
	}
	second := fleet.EngineUpgradeInstance{AgentID: "agt-2", Agent: "edge-2", DeploymentID: "dep-2", Deployment: "argocd-2", CanaryID: "dep-3", Canary: "c", Phase: fleet.EngineInstancePending}
	return fleet.EngineUpgrade{
		ID: fleet.NewEngineUpgradeID(), TenantID: w.tenant.ID, Name: name, Revision: "v3.1.0", Timeout: 90*time.Second + time.Microsecond,
		Phase: fleet.EngineUpgradeRunning, Reason: fleet.ReasonEngineUpgradeRunning, Message: "at it", Halt: fleet.HaltAfterInstance, HaltedBy: "bob",
		By: "ada", Step: 3, CreatedAt: at(9), Instances: []fleet.EngineUpgradeInstance{instance, second},
	}
}

func upgradesAreListed(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	done := newEngineUpgrade(w, "argocd-2")
	done.Phase, done.FinishedAt, done.Halt = fleet.EngineUpgradeSucceeded, at(40), fleet.HaltNone
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Create(ctx, done) })
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeEngineUpgrade, ID: string(done.ID)}})
	list := func(page store.Page) []fleet.EngineUpgrade {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.EngineUpgrade, error) {
			return tx.EngineUpgrades().List(ctx, w.tenant.ID, page)
		})
	}
	same(t, "all", list(store.Page{}), []fleet.EngineUpgrade{done, w.upgrade})
	same(t, "second page", list(store.Page{After: "argocd-2", Limit: 1}), []fleet.EngineUpgrade{w.upgrade})
	same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.EngineUpgrade, error) {
		return tx.EngineUpgrades().ByName(ctx, w.tenant.ID, "argocd-3")
	}), w.upgrade)
	same(t, "open", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.EngineUpgrade, error) {
		return tx.EngineUpgrades().Open(ctx, w.tenant.ID)
	}), []fleet.EngineUpgrade{w.upgrade})
	open := map[fleet.EngineUpgradeID]bool{}
	for _, u := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.EngineUpgrade, error) {
		return tx.EngineUpgrades().OpenAllTenants(ctx)
	}) {
		open[u.ID] = len(u.Instances) == 2
	}
	same(t, "open anywhere", open, map[fleet.EngineUpgradeID]bool{w.upgrade.ID: true, other.upgrade.ID: true})
	again := newEngineUpgrade(w, "argocd-3")
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Create(ctx, again) })
}

func upgradesMoveOn(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.upgrade
	want.Phase, want.Reason, want.Message, want.Halt, want.HaltedBy, want.FinishedAt = fleet.EngineUpgradeHalted, "R", "m", fleet.HaltRollBack, "eve", at(50)
	want.Instances = append([]fleet.EngineUpgradeInstance{}, want.Instances...)
	i := &want.Instances[1]
	i.Phase, i.Reason, i.Message, i.Before, i.BeforeCommit, i.Commit, i.RunID = fleet.EngineInstanceChecking, "X", "y", 4, "a", "b", "run-9"
	i.CanaryAfter, i.Deadline, i.StartedAt, i.FinishedAt = fleet.Version{Epoch: 2, Generation: 8}, at(60), at(61), at(62)
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Update(ctx, want) })
	stale := want
	want.Step++
	get := func() fleet.EngineUpgrade {
		return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.EngineUpgrade, error) {
			return tx.EngineUpgrades().Get(ctx, w.tenant.ID, w.upgrade.ID)
		})
	}
	same(t, "upgrade", get(), want)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeEngineUpgrade, ID: string(w.upgrade.ID)}})
	stale.Message = "the same step again"
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Update(ctx, stale) })
	same(t, "upgrade after a second write of the same step", get(), want)
}

func upgradesTrim(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	for n, name := range []string{"old", "newer", "newest"} {
		done := newEngineUpgrade(w, name)
		done.Phase, done.FinishedAt = fleet.EngineUpgradeSucceeded, at(40+n)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Create(ctx, done) })
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Trim(ctx, w.tenant.ID, 2) })
	var names []string
	for _, u := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.EngineUpgrade, error) {
		return tx.EngineUpgrades().List(ctx, w.tenant.ID, store.Page{})
	}) {
		names = append(names, u.Name)
	}
	same(t, "kept", names, []string{"argocd-3", "newer", "newest"})
}

// upgradesKeepRevisions has many newer revisions while an upgrade may have to return to the first one.
func upgradesKeepRevisions(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	d := newDeployment(w, "argocd")
	d.Pin = fleet.Pin{}
	u := newEngineUpgrade(w, "way-back")
	u.Instances[0].DeploymentID, u.Instances[0].Before = d.ID, 1
	appendRevision := func(n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			b := newBundle(w.tenant.ID, string(rune('a'+n)))
			if err := tx.Bundles().Put(ctx, b); err != nil {
				return err
			}
			_, err := tx.Revisions().Append(ctx, w.tenant.ID, d.ID, fleet.Revision{Commit: b.Digest, RenderedAt: at(n), Bundles: map[string]string{"": b.Digest}}, 2)
			return err
		})
	}
	kept := func() []int64 {
		var out []int64
		for _, r := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Revision, error) {
			return tx.Revisions().List(ctx, w.tenant.ID, d.ID, store.Whole())
		}) {
			out = append(out, r.Seq)
		}
		return out
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Deployments().Create(ctx, d), tx.EngineUpgrades().Create(ctx, u))
	})
	for n := range 5 {
		appendRevision(n)
	}
	same(t, "while the upgrade is open", kept(), []int64{5, 4, 1})
	u.Phase, u.FinishedAt = fleet.EngineUpgradeSucceeded, at(60)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.EngineUpgrades().Update(ctx, u) })
	appendRevision(6)
	same(t, "after it", kept(), []int64{6, 5})
}
