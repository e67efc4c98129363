package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var reportTests = map[string]func(*testing.T, store.Store){
	"write only changes":                            reportsWriteNews,
	"replace, add and remove objects":               reportsOnObjects,
	"of others change nothing":                      reportsOfOthers,
	"of a target without any are always news":       firstReport,
	"that are refused do not affect their batch":    reportBatch,
	"of too many objects are cut":                   reportsAreBounded,
	"have the same effect in a batch as one by one": batchesAreSums,
	"with targets that were read before":            reportsOnStandings,
}

func getObjects(t *testing.T, s store.Store, w *world) []fleet.ObjectStatus {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.ObjectStatus, error) {
		return tx.Targets().Objects(ctx, w.tenant.ID, w.target.ID)
	})
}

// standing returns the standing of a target.
func standing(x fleet.Target) store.Standing {
	return store.Standing{
		ID: x.ID, TenantID: x.TenantID, DeploymentID: x.DeploymentID, DeploymentName: x.DeploymentName, AgentID: x.AgentID, Observed: x.Observed,
		Desired: store.DesiredStanding{
			Version: x.Desired.Version, Digest: x.Desired.Digest, Tombstone: x.Desired.Tombstone, Detached: x.Desired.Detached},
	}
}

// observe writes one report.
func observe(ctx context.Context, tx store.Tx, tenant fleet.TenantID, agent fleet.AgentID, r store.Report) (changed bool, err error) {
	ids, err := tx.Targets().SetObserved(ctx, tenant, []store.AgentReport{{Agent: agent, Report: r}})
	return len(ids) > 0, err
}

func report(t *testing.T, s store.Store, w *world, r store.Report) (changed bool) {
	t.Helper()
	r.Target = w.target.ID
	update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
		changed, err = observe(ctx, tx, w.tenant.ID, w.agent.ID, r)
		return err
	})
	return changed
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
		{"the reason changed", func() fleet.Observed {
			return with(func(o *fleet.Observed) { o.Reason, o.AsOf = fleet.ReasonForbidden, at(62) })
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
		same(t, step.reason+": changed", report(t, s, w, store.Report{Observed: observed}), step.news)
		var changes []store.Change
		if step.news {
			stored = observed
			changes = []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeStatus, ID: string(w.target.ID),
				AgentID: w.agent.ID, DeploymentID: w.deployment.ID}}
		}
		same(t, step.reason, getTarget(t, s, w).Observed, stored)
		same(t, step.reason+": changes", since(t, s, before), changes)
	}
	got := getTarget(t, s, w)
	same(t, "desired", got.Desired, w.target.Desired)
	same(t, "sync since, of the newest version", got.SyncSince, at(67))
	same(t, "health since", got.HealthSince, at(61))
}

func reportsOnObjects(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	web, service := w.objects[0], w.objects[1]
	broken := web
	broken.Health, broken.Message = fleet.HealthFailed, "crash loop"
	moved := broken
	moved.Version = "v2" // the same object in another version
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
		{"a delta without changes", store.Report{Objects: []fleet.ObjectStatus{web}}, []fleet.ObjectStatus{service, web}, false},
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
		same(t, step.reason+": changed", report(t, s, w, step.report), step.news)
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
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			changed, err := observe(ctx, tx, sender.tenant, sender.agent, r)
			same(t, sender.reason+" changes something", changed, false)
			return err
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
		_, err := observe(ctx, tx, w.tenant.ID, w.agent.ID, store.Report{Target: x.ID, Observed: fleet.Observed{AsOf: at(70)}})
		return err
	})
	same(t, "after", read(t, s, get).Observed, fleet.Observed{AsOf: at(70)})
}

// reportBatch checks that a report on a missing target does not affect the others of its transaction.
func reportBatch(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.target.Observed
	want.Sync, want.AsOf = fleet.SyncSynced, at(80)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, id := range []fleet.TargetID{fleet.NewTargetID(), w.target.ID} {
			if _, err := observe(ctx, tx, w.tenant.ID, w.agent.ID, store.Report{Target: id, Observed: want}); err != nil {
				return err
			}
		}
		return nil
	})
	same(t, "observed", getTarget(t, s, w).Observed, want)
}

func reportsAreBounded(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	objects := make([]fleet.ObjectStatus, store.MaxObjects+5)
	for i := range objects {
		objects[i] = newObject("", "ConfigMap", "shop", fmt.Sprintf("cm-%05d", i), "")
	}
	r := store.Report{Observed: w.target.Observed, Full: true, Objects: objects}
	same(t, "a whole list is news", report(t, s, w, r), true)
	same(t, "objects", len(getObjects(t, s, w)), store.MaxObjects)
	same(t, "the same list is none", report(t, s, w, r), false)

	known := objects[3]
	known.Message = "changed"
	delta := store.Report{Observed: w.target.Observed, Objects: []fleet.ObjectStatus{known, objects[store.MaxObjects]}}
	same(t, "a change of one that is there", report(t, s, w, delta), true)
	same(t, "and once more", report(t, s, w, delta), false)
	delta.Gone = []fleet.ObjectRef{objects[7].ObjectRef}
	same(t, "space for one", report(t, s, w, delta), true)
	got := getObjects(t, s, w)
	same(t, "objects", len(got), store.MaxObjects)
	same(t, "the one that was changed", got[3], known)
	same(t, "the one that came in", got[len(got)-1], objects[store.MaxObjects])
}

// batchesAreSums writes the same reports to one tenant one by one and to another all together.
func batchesAreSums(t *testing.T, s store.Store) {
	one, all := newWorld(t, s, "a"), newWorld(t, s, "b")
	of := func(w *world) []store.AgentReport {
		newer, broken, stale := w.target.Observed, w.objects[0], w.target.Observed
		newer.Generation, newer.AsOf = 7, at(60)
		broken.Health = fleet.HealthFailed
		stale.Message = "late"
		job := newObject("batch", "Job", "shop", "migrate", "")
		mine := func(o fleet.Observed, r store.Report) store.AgentReport {
			r.Target, r.Observed = w.target.ID, o
			return store.AgentReport{Agent: w.agent.ID, Report: r}
		}
		return []store.AgentReport{
			mine(w.target.Observed, store.Report{}),
			mine(newer, store.Report{Objects: []fleet.ObjectStatus{broken, job}}),
			{Agent: fleet.NewAgentID(), Report: store.Report{Target: w.target.ID, Full: true, Observed: fleet.Observed{Version: fleet.Version{Epoch: 9}}}},
			{Agent: w.agent.ID, Report: store.Report{Target: fleet.NewTargetID()}},
			mine(stale, store.Report{Full: true}),
			mine(newer, store.Report{Gone: []fleet.ObjectRef{job.ObjectRef}}),
		}
	}
	for _, r := range of(one) {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			_, err := observe(ctx, tx, one.tenant.ID, r.Agent, r.Report)
			return err
		})
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		changed, err := tx.Targets().SetObserved(ctx, all.tenant.ID, of(all))
		same(t, "changed", changed, []fleet.TargetID{all.target.ID})
		return err
	})
	same(t, "observed", getTarget(t, s, all).Observed, getTarget(t, s, one).Observed)
	same(t, "objects", getObjects(t, s, all), getObjects(t, s, one))
	same(t, "generation", getTarget(t, s, all).Observed.Generation, int64(7))
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		again := of(all)
		changed, err := tx.Targets().SetObserved(ctx, all.tenant.ID, again[5:])
		same(t, "changed by known states", changed, nil)
		return err
	})
	same(t, "changes", since(t, s, before), nil)
}

// reportsOnStandings writes reports with standings that the same transaction has read before.
func reportsOnStandings(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	say := func(x *store.Standing, message string) store.AgentReport {
		o := a.target.Observed
		o.Message, o.AsOf = message, at(90)
		return store.AgentReport{Agent: a.agent.ID, Before: x, Report: store.Report{Target: a.target.ID, Observed: o}}
	}
	was := a.target.Observed.Message
	steps := []struct {
		reason  string
		tenant  fleet.TenantID
		say     []string
		want    string
		changes bool
	}{
		{"what is known already", a.tenant.ID, []string{was}, was, false},
		{"under another tenant", b.tenant.ID, []string{"foreign"}, was, false},
		{"news", a.tenant.ID, []string{"news"}, "news", true},
		{"news, and then what was there before", a.tenant.ID, []string{"other", "news"}, "news", true},
	}
	for _, step := range steps {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			found, err := tx.Targets().StandingsAllTenants(ctx, []fleet.TargetID{a.target.ID})
			if err != nil {
				return err
			}
			var reports []store.AgentReport
			for _, message := range step.say {
				reports = append(reports, say(&found[0], message))
			}
			changed, err := tx.Targets().SetObserved(ctx, step.tenant, reports)
			same(t, step.reason+" changes something", len(changed) > 0, step.changes)
			return err
		})
		same(t, step.reason, getTarget(t, s, a).Observed.Message, step.want)
	}
}
