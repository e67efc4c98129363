package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var runTests = map[string]func(*testing.T, store.Store){
	"are numbered and listed newest first": runsAreListed,
	"move on":                              runsMoveOn,
	"wait for targets":                     runsWait,
	"are trimmed when they are done":       runsTrim,
}

func createRun(t *testing.T, s store.Store, r fleet.SyncRun) fleet.SyncRun {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
		r.Seq, err = tx.Runs().Create(ctx, r)
		return err
	})
	return r
}

func getRun(t *testing.T, s store.Store, r fleet.SyncRun) fleet.SyncRun {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.SyncRun, error) {
		return tx.Runs().Get(ctx, r.TenantID, r.ID)
	})
}

func runsAreListed(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	second, third := newRun(w.deployment), newRun(w.deployment)
	second.Phase, third.Phase, third.Kind = fleet.RunSucceeded, fleet.RunPending, fleet.RunRollback
	second.FinishedAt, third.StartedAt = at(20), time.Time{}
	before := last(t, s)
	second, third = createRun(t, s, second), createRun(t, s, third)
	second.Deployment, third.Deployment = w.deployment.Name, w.deployment.Name
	same(t, "numbers", []int64{second.Seq, third.Seq}, []int64{2, 3})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeRun, ID: string(second.ID), DeploymentID: w.deployment.ID},
		{TenantID: w.tenant.ID, Kind: store.ChangeRun, ID: string(third.ID), DeploymentID: w.deployment.ID}})
	same(t, "one", getRun(t, s, second), second)
	list := func(page store.Page) []fleet.SyncRun {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.SyncRun, error) {
			return tx.Runs().OfDeployment(ctx, w.tenant.ID, w.deployment.ID, store.RunFilter{Page: page})
		})
	}
	same(t, "all", list(store.Page{}), []fleet.SyncRun{third, second, w.run})
	same(t, "first page", list(store.Page{Limit: 2}), []fleet.SyncRun{third, second})
	same(t, "second page", list(store.Page{After: "2", Limit: 2}), []fleet.SyncRun{w.run})
	same(t, "open", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.SyncRun, error) {
		return tx.Runs().Open(ctx, w.tenant.ID, w.deployment.ID)
	}), []fleet.SyncRun{w.run, third})
	open := map[fleet.RunID]bool{}
	for _, r := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.SyncRun, error) { return tx.Runs().OpenAllTenants(ctx) }) {
		open[r.ID] = true
	}
	same(t, "open anywhere", open, map[fleet.RunID]bool{w.run.ID: true, third.ID: true, other.run.ID: true})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Runs().Create(ctx, newRun(fleet.Deployment{ID: fleet.NewDeploymentID(), TenantID: w.tenant.ID}))
		return err
	})
}

func runsMoveOn(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.run
	want.Revision, want.Kept, want.Phase, want.Message, want.Commit = "v2", 4, fleet.RunFailed, "no such tag", "beef"
	want.StartedAt, want.FinishedAt = at(30), at(31)
	edited := want
	edited.Kind, edited.By, edited.OperationID = fleet.RunRollback, "mallory", "opn-x" // which an update does not do
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Runs().Update(ctx, edited) })
	same(t, "run", getRun(t, s, w.run), want)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeRun, ID: string(w.run.ID), DeploymentID: w.deployment.ID}})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.SyncRun, error) {
		return tx.Runs().Get(ctx, w.tenant.ID, fleet.NewRunID())
	})
}

func runsWait(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	agent := newAgent(w.tenant.ID, "edge-2")
	x := newTarget(w, w.deployment, agent)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Agents().Create(ctx, agent), tx.Targets().Create(ctx, x))
	})
	second := fleet.RunTarget{TargetID: x.ID, Version: fleet.Version{Epoch: 1, Generation: 9}}
	counts := func() [2]int {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([2]int, error) {
			open, failed, err := tx.Runs().CountOpenTargets(ctx, w.tenant.ID, w.run.ID)
			return [2]int{open, failed}, err
		})
	}
	waiting := func(ctx context.Context, tx store.Tx) (fleet.SyncRun, error) {
		return tx.Runs().WaitingForTarget(ctx, w.tenant.ID, x.ID)
	}
	set := func(rt fleet.RunTarget) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error {
			return tx.Runs().SetTarget(ctx, w.tenant.ID, w.run.ID, rt)
		}
	}
	same(t, "open and failed at first", counts(), [2]int{1, 0})
	missing(t, s, waiting)
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Runs().SetTargets(ctx, w.tenant.ID, w.run.ID, []fleet.RunTarget{w.runTarget, second})
	})
	same(t, "open and failed", counts(), [2]int{2, 0})
	same(t, "the one that waits", read(t, s, waiting), w.run)
	same(t, "the ones that wait", read(t, s, func(ctx context.Context, tx store.Tx) (map[fleet.TargetID]fleet.SyncRun, error) {
		return tx.Runs().WaitingForTargets(ctx, w.tenant.ID, []fleet.TargetID{x.ID, w.target.ID, fleet.NewTargetID()})
	}), map[fleet.TargetID]fleet.SyncRun{x.ID: w.run, w.target.ID: w.run})
	second.Done, second.Failed, second.Message = true, true, "refused"
	for range 2 { // the second time is no news
		update(t, s, set(second))
	}
	same(t, "open and failed", counts(), [2]int{1, 1})
	missing(t, s, waiting)
	want := []fleet.RunTarget{w.runTarget, second}
	if second.TargetID < w.runTarget.TargetID {
		want = []fleet.RunTarget{second, w.runTarget}
	}
	same(t, "targets", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.RunTarget, error) {
		return tx.Runs().Targets(ctx, w.tenant.ID, w.run.ID)
	}), want)
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeRun, ID: string(w.run.ID), DeploymentID: w.deployment.ID}
	same(t, "changes", since(t, s, before), []store.Change{record, record})
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Targets().Remove(ctx, w.tenant.ID, x.ID) })
	same(t, "open and failed without a target that left", counts(), [2]int{1, 0})
	refuse(t, s, store.ErrNotFound, set(second))
}

func runsTrim(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	for range 4 {
		r := newRun(w.deployment)
		r.Phase = fleet.RunSucceeded
		createRun(t, s, r)
	}
	trim := func(n int) []int64 {
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Runs().Trim(ctx, w.tenant.ID, n) })
		var out []int64
		for _, r := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.SyncRun, error) {
			return tx.Runs().OfDeployment(ctx, w.tenant.ID, w.deployment.ID, store.RunFilter{})
		}) {
			out = append(out, r.Seq)
		}
		return out
	}
	same(t, "all are kept", trim(9), []int64{5, 4, 3, 2, 1})
	same(t, "two that are done, and the one that is not", trim(2), []int64{5, 4, 1})
	same(t, "the one that is not", trim(0), []int64{1})
	same(t, "the other tenant's", getRun(t, s, other.run), other.run)
	same(t, "the next number", createRun(t, s, newRun(w.deployment)).Seq, 6)
}
