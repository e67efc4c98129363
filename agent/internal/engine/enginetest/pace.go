package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// paceCases are about how soon something is done, and how little when there is nothing to do.
var paceCases = []testCase{
	{"restores an edit in no more than ten times what is promised", restoresSoon},
	{"asks nothing of the cluster when nothing changes, whatever its targets wait for", idle},
}

// restoresSoon allows for a machine that does much else.
//
// covers: D1
func restoresSoon(t *testing.T, w *world) {
	const promised = time.Second
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	begun := time.Now()
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	if took := time.Since(begun); took > 10*promised {
		t.Errorf("it took %v", took)
	}
	begun = time.Now()
	w.delete(t, "a")
	w.rec.event(t, fleet.ReasonDriftHealed, "created again")
	if took := time.Since(begun); took > 10*promised {
		t.Errorf("it took %v to create it again", took)
	}
}

// idle shows that idle costs nothing: with no change there are no writes and no reads of the cluster beyond
// open watches. Its targets are in every state in which there is nothing to do: synced, with objects that are
// held, with drift that is only reported, and with a dry run.
//
// covers: D8
func idle(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("healed", "1")+configMap("lost", "1")+many(12))
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("healed", "1")+configMap("lost", "1")))
	w.heldCount(t, 2, 12)
	w.edit(t, "somebody", "healed", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/healed")
	w.delete(t, "lost")
	w.rec.event(t, fleet.ReasonDriftHealed, "/lost")

	reporting, dryRunning, gone := fleet.NewTargetID(), fleet.NewTargetID(), fleet.NewTargetID()
	w.setOther(t, e, reporting, 1, fleet.Policy{Prune: true, Drift: fleet.DriftReport}, configMap("edited", "1")+configMap("deleted", "1"))
	w.rec.status(t, reporting, 1, fleet.SyncSynced)
	w.edit(t, "somebody", "edited", `{"data":{"key":"edited"}}`)
	w.delete(t, "deleted")
	w.rec.status(t, reporting, 1, fleet.SyncOutOfSync)
	w.setOther(t, e, dryRunning, 1, fleet.Policy{Prune: true, DryRun: true}, configMap("never", "1"))
	w.rec.status(t, dryRunning, 1, fleet.SyncOutOfSync)
	w.setOther(t, e, gone, 1, fleet.Policy{Prune: true}, configMap("short", "1"))
	w.rec.status(t, gone, 1, fleet.SyncSynced)
	e.Set(engine.Desired{Target: gone, State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Tombstone: true}})
	w.rec.status(t, gone, 2, fleet.SyncDeleted)

	w.quiet(t, time.Second) // what was healed is written down a little later
	w.asksNothing(t, 3*time.Second)
}

func (w *world) setOther(t *testing.T, e engine.Engine, target fleet.TargetID, generation int64, policy fleet.Policy, text string) {
	t.Helper()
	d := w.other(t, target, generation, text)
	d.Deployment, d.State.Policy = "other-"+string(target), policy
	e.Set(d)
}

// quiet waits until the engine has sent nothing and said nothing for a while.
func (w *world) quiet(t testing.TB, while time.Duration) {
	t.Helper()
	sent, said, since := -1, -1, time.Now()
	testkit.Eventually(t, limit, func(context.Context) error {
		if nowSent, nowSaid := w.traffic.mark(), w.rec.count(w.target); nowSent != sent || nowSaid != said {
			sent, said, since = nowSent, nowSaid, time.Now()
		}
		if time.Since(since) < while {
			return errors.New("the engine is at work")
		}
		return nil
	})
}

// asksNothing checks that the engine neither sends nor says anything for a while.
func (w *world) asksNothing(t *testing.T, while time.Duration) {
	t.Helper()
	begun, mark := time.Now(), w.traffic.mark()
	said := w.rec.reports()
	testkit.Eventually(t, limit, func(context.Context) error {
		if w.traffic.mark() == mark && time.Since(begun) < while {
			return errors.New("the time is not over")
		}
		return nil
	})
	inventory, others := w.traffic.since(mark, w.agentNS)
	if len(inventory)+len(others) > 0 {
		t.Errorf("idle for %v it sent %v %v", time.Since(begun), inventory, others)
	}
	if more := w.rec.reports() - said; more > 0 {
		t.Errorf("idle for %v it reported %d times", time.Since(begun), more)
	}
}

// reports is how many statuses there were of all targets.
func (r *recorder) reports() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, count := range r.counts {
		all += count
	}
	return all
}
