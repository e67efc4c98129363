package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var reportTests = map[string]func(*testing.T, store.Store){
	"write what is new and nothing else":           reportsWriteNews,
	"replace, add and remove objects":              reportsOnObjects,
	"of others change nothing":                     reportsOfOthers,
	"of a target without any are always news":      firstReport,
	"that are refused leave a batch of them whole": reportBatch,
}

func getObjects(t *testing.T, s store.Store, w *world) []fleet.ObjectStatus {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.ObjectStatus, error) {
		return tx.Targets().Objects(ctx, w.tenant.ID, w.target.ID)
	})
}

func report(t *testing.T, s store.Store, w *world, r store.Report) {
	t.Helper()
	r.Target = w.target.ID
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetObserved(ctx, w.tenant.ID, w.agent.ID, r)
	})
}

// covers: D8
func reportsWriteNews(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	stored := w.target.Observed
	with := func(change func(*fleet.Observed)) fleet.Observed {
		out := stored
		change(&out)
		return out
	}
	steps := []struct {
		reason   string
		observed func() fleet.Observed
		news     bool
	}{
		{"only the time moved", func() fleet.Observed { return with(func(o *fleet.Observed) { o.AsOf = at(60) }) }, false},
		{"the health changed", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Health, o.AsOf = fleet.HealthCurrent, at(61) })
		}, true},
		{"the message changed", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Message, o.AsOf = "done", at(62) })
		}, true},
		{"the sync changed", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Sync, o.AsOf = fleet.SyncSynced, at(63) })
		}, true},
		{"the digest changed", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Digest, o.AsOf = "sha256:new", at(64) })
		}, true},
		{"a newer generation", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Generation, o.AsOf = 7, at(65) })
		}, true},
		{"an older generation", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Generation, o.Message, o.AsOf = 6, "late", at(66) })
		}, false},
		{"a newer epoch with a lower generation", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Epoch, o.Generation, o.AsOf = 2, 1, at(67) })
		}, true},
		{"an older epoch with a higher generation", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Epoch, o.Generation, o.AsOf = 1, 99, at(68) })
		}, false},
	}
	for _, step := range steps {
		before, observed := last(t, s), step.observed()
		report(t, s, w, store.Report{Observed: observed})
		var changes []store.Change
		if step.news {
			stored = observed
			changes = []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeStatus, ID: string(w.target.ID),
				AgentID: w.agent.ID, DeploymentID: w.deployment.ID}}
		}
		same(t, step.reason, getTarget(t, s, w).Observed, stored)
		same(t, step.reason+": changes", since(t, s, before), changes)
	}
	same(t, "desired", getTarget(t, s, w).Desired, w.target.Desired)
}

func reportsOnObjects(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	web, service := w.objects[0], w.objects[1]
	broken := web
	broken.Health, broken.Message = fleet.HealthFailed, "crash loop"
	moved := broken
	moved.Version = "v2" // another way to the same object
	job := newObject("batch", "Job", "shop", "migrate", "")
	older := w.target.Observed
	older.Generation--
	steps := []struct {
		reason string
		report store.Report
		want   []fleet.ObjectStatus
		news   bool
	}{
		{"the same list again", store.Report{Full: true, Objects: []fleet.ObjectStatus{service, web}}, []fleet.ObjectStatus{service, web}, false},
		{"an empty delta", store.Report{}, []fleet.ObjectStatus{service, web}, false},
		{"a delta that says the same", store.Report{Objects: []fleet.ObjectStatus{web}}, []fleet.ObjectStatus{service, web}, false},
		{"a delta that changes one", store.Report{Objects: []fleet.ObjectStatus{broken}}, []fleet.ObjectStatus{service, broken}, true},
		{"a list that heals one", store.Report{Full: true, Objects: []fleet.ObjectStatus{web, service}}, []fleet.ObjectStatus{service, web}, true},
		{"a list that changes one", store.Report{Full: true, Objects: []fleet.ObjectStatus{broken, service}}, []fleet.ObjectStatus{service, broken}, true},
		{"a version that moved", store.Report{Objects: []fleet.ObjectStatus{moved}}, []fleet.ObjectStatus{service, moved}, true},
		{"a delta that adds one", store.Report{Objects: []fleet.ObjectStatus{job}}, []fleet.ObjectStatus{service, moved, job}, true},
		{"one that left", store.Report{Gone: []fleet.ObjectRef{service.ObjectRef}}, []fleet.ObjectStatus{moved, job}, true},
		{"one that left before", store.Report{Gone: []fleet.ObjectRef{service.ObjectRef}}, []fleet.ObjectStatus{moved, job}, false},
		{"a list of an older version", store.Report{Observed: older, Full: true}, []fleet.ObjectStatus{moved, job}, false},
		{"a new list", store.Report{Full: true, Objects: []fleet.ObjectStatus{web, service}}, []fleet.ObjectStatus{service, web}, true},
		{"an empty list", store.Report{Full: true}, nil, true},
		{"an empty list again", store.Report{Full: true}, nil, false},
	}
	stored := w.target.Observed
	for i, step := range steps {
		before := last(t, s)
		if step.report.Observed == (fleet.Observed{}) {
			step.report.Observed = stored
			step.report.Observed.AsOf = at(100 + i)
		}
		report(t, s, w, step.report)
		if step.news {
			stored = step.report.Observed
		}
		same(t, step.reason, getObjects(t, s, w), step.want)
		same(t, step.reason+": as of", getTarget(t, s, w).Observed.AsOf, stored.AsOf)
		if got := len(since(t, s, before)) > 0; got != step.news {
			t.Errorf("%s: recorded %v, want %v", step.reason, got, step.news)
		}
	}
}

func reportsOfOthers(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	stranger := newAgent(a.tenant.ID, "stranger")
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, stranger) })
	before := dump(t, s, a)
	r := store.Report{Target: a.target.ID, Full: true, Observed: fleet.Observed{
		Version: fleet.Version{Epoch: 9}, Sync: fleet.SyncSynced, AsOf: at(99)}}
	senders := []struct {
		reason string
		tenant fleet.TenantID
		agent  fleet.AgentID
	}{
		{"another agent of the tenant", a.tenant.ID, stranger.ID},
		{"an agent of another tenant", b.tenant.ID, b.agent.ID},
		{"the agent under another tenant", b.tenant.ID, a.agent.ID},
		{"an agent of another tenant under this one", a.tenant.ID, b.agent.ID},
	}
	for _, sender := range senders {
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
			return tx.Targets().SetObserved(ctx, sender.tenant, sender.agent, r)
		})
		same(t, sender.reason, dump(t, s, a), before)
	}
}

func firstReport(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	d := newDeployment(w, "new")
	x := newTarget(w, d, w.agent)
	x.Observed = fleet.Observed{}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Deployments().Create(ctx, d); err != nil {
			return err
		}
		return tx.Targets().Create(ctx, x)
	})
	get := func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.tenant.ID, x.ID)
	}
	same(t, "before", read(t, s, get).Observed, fleet.Observed{})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Targets().SetObserved(ctx, w.tenant.ID, w.agent.ID, store.Report{Target: x.ID, Observed: fleet.Observed{AsOf: at(70)}})
	})
	same(t, "after", read(t, s, get).Observed, fleet.Observed{AsOf: at(70)})
}

// reportBatch shows that ErrNotFound of one report does not cost the others of its transaction.
func reportBatch(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.target.Observed
	want.Sync, want.AsOf = fleet.SyncSynced, at(80)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, id := range []fleet.TargetID{fleet.NewTargetID(), w.target.ID} {
			_ = tx.Targets().SetObserved(ctx, w.tenant.ID, w.agent.ID, store.Report{Target: id, Observed: want})
		}
		return nil
	})
	same(t, "observed", getTarget(t, s, w).Observed, want)
}
