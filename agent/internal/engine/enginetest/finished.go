package enginetest

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// finishedCases are of Jobs and Pods that do their work once.
var finishedCases = []testCase{
	{"does not run a Job again that has completed and was deleted by its ttl", finishedJob},
	{"does not run a Job again that has completed and gone while the agent was away", finishedUnseen},
	{"leaves a completed Job alone that is deleted by hand, and creates one again that had work left", finishedByHand},
	{"does not run a Job again that has completed and moves to another deployment", finishedAndMoved},
	{"does not run a Pod again that has succeeded and is gone", finishedPod},
}

// runningJob is the text of a Job that completes at once on simulated nodes; more is put into its spec.
func runningJob(name, image, more string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  %s
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: %q}]}}
`, name, more, image)
}

// awaitDone waits until a version is Synced in which an object is gone and counts as done.
func (w *world) awaitDone(t *testing.T, generation int64, name string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		o := find(s, name)
		if s.Observed.Generation != generation || s.Observed.Sync != fleet.SyncSynced || o.Sync != fleet.SyncSynced ||
			o.Health != fleet.HealthCurrent || o.Reason != fleet.ReasonFinished {
			return fmt.Sprintf("want generation %d Synced, and %s Current and Finished", generation, name)
		}
		return ""
	})
}

// creations counts what was written to Jobs and Pods since a mark.
func (w *world) creations(mark int) (n int) {
	_, others := w.traffic.since(mark, w.agentNS)
	for _, r := range others {
		if r.write() && (strings.Contains(r.path, "/jobs/") || strings.Contains(r.path, "/pods/")) {
			n++
		}
	}
	return n
}

func (w *world) missing(t *testing.T, resource schema.GroupVersionResource, name string) {
	t.Helper()
	if _, err := w.client.Resource(resource).Namespace(w.ns).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%s %s is there again: %v", resource.Resource, name, err)
	}
}

// covers: D6, A8
func finishedJob(t *testing.T, w *world) {
	text := runningJob("migrate", "example.invalid/migrate:1", "ttlSecondsAfterFinished: 0")
	e := w.start(t)
	mark := w.traffic.mark()
	e.Set(w.desired(t, 1, text))
	w.awaitDone(t, 1, "Job migrate")
	if n := w.creations(mark); n != 1 {
		t.Errorf("the Job was written %d times, want once", n)
	}
	mark = w.traffic.mark()
	e.Set(w.desired(t, 2, text+configMap("a", "1")))
	w.awaitDone(t, 2, "Job migrate")
	e.stop()
	e = w.start(t)
	e.Set(w.desired(t, 3, text+configMap("a", "2")))
	w.awaitDone(t, 3, "Job migrate")
	w.policy.Drift = fleet.DriftReport
	e.Set(w.desired(t, 4, text+configMap("a", "2")))
	w.awaitDone(t, 4, "Job migrate")
	w.policy.DryRun = true
	e.Set(w.desired(t, 5, text+configMap("a", "2")))
	w.awaitDone(t, 5, "Job migrate")
	w.policy = fleet.Policy{Prune: true}
	if n := w.creations(mark); n != 0 {
		t.Errorf("the Job was written %d times after it had completed", n)
	}
	w.missing(t, jobs, "migrate")
	mark = w.traffic.mark()
	e.Set(w.desired(t, 6, runningJob("migrate", "example.invalid/migrate:2", "ttlSecondsAfterFinished: 0")))
	w.awaitDone(t, 6, "Job migrate")
	if n := w.creations(mark); n != 1 {
		t.Errorf("the Job was written %d times after its manifest had changed, want once", n)
	}
}

// covers: A14, D6
func finishedAndMoved(t *testing.T, w *world) {
	text := runningJob("migrate", "example.invalid/migrate:1", "ttlSecondsAfterFinished: 0")
	for name, takerFirst := range map[string]bool{"the giver hears of it first": false, "the taker hears of it first": true} {
		t.Run(name, func(t *testing.T) {
			w.target = fleet.NewTargetID()
			e := w.start(t)
			e.Set(w.desired(t, 1, text+configMap("own", "1")))
			w.awaitDone(t, 1, "Job migrate")
			mark := w.traffic.mark()
			giver := handsOver(w.desired(t, 2, configMap("own", "1")), "Job.batch "+w.ns+"/migrate")
			taker := w.other(t, fleet.NewTargetID(), 1, text)
			if takerFirst {
				e.Set(taker)
				w.rec.status(t, taker.Target, 1, fleet.SyncSynced)
				e.Set(giver)
			} else {
				e.Set(giver)
				w.fence(t, e)
				e.Set(taker)
			}
			w.rec.status(t, taker.Target, 1, fleet.SyncSynced)
			w.rec.status(t, w.target, 2, fleet.SyncSynced)
			e.stop()
			e = w.start(t)
			again := w.other(t, taker.Target, 2, text)
			e.Set(w.desired(t, 3, configMap("own", "1")))
			e.Set(again)
			w.rec.status(t, taker.Target, 2, fleet.SyncSynced)
			if n := w.creations(mark); n != 0 {
				t.Errorf("the Job was written %d times after it had completed", n)
			}
			for _, id := range []fleet.TargetID{w.target, taker.Target} {
				e.Set(engine.Desired{Target: id, State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 9}, Tombstone: true}})
				w.rec.status(t, id, 9, fleet.SyncDeleted)
			}
			e.stop()
		})
	}
	// A deployment that comes after all is gone runs it.
	w.target = fleet.NewTargetID()
	e, mark := w.start(t), w.traffic.mark()
	e.Set(w.desired(t, 1, text))
	w.awaitDone(t, 1, "Job migrate")
	if n := w.creations(mark); n != 1 {
		t.Errorf("the Job was written %d times for a new deployment, want once", n)
	}
}

func finishedUnseen(t *testing.T, w *world) {
	text := runningJob("migrate", "example.invalid/migrate:1", "ttlSecondsAfterFinished: 3600")
	e := w.start(t)
	w.sync(t, e, 1, text)
	e.stop()
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", "job", "migrate")
	mark := w.traffic.mark()
	e = w.start(t)
	e.Set(w.desired(t, 2, text))
	w.awaitDone(t, 2, "Job migrate")
	if n := w.creations(mark); n != 0 {
		t.Errorf("the Job was written %d times", n)
	}
	w.missing(t, jobs, "migrate")
}

// covers: D1
func finishedByHand(t *testing.T, w *world) {
	text := runningJob("done", "example.invalid/done:1", "") + runningJob("waits", "example.invalid/waits:1", "suspend: true")
	e := w.start(t)
	e.Set(w.desired(t, 1, text))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, "Job done").Health != fleet.HealthCurrent {
			return "want the Job completed"
		}
		return ""
	})
	was, _ := w.jobImage(t, "waits")
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", "job", "done", "waits")
	w.rec.event(t, fleet.ReasonDriftHealed, "/waits")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, "Job done").Reason != fleet.ReasonFinished {
			return "want the completed Job done"
		}
		return ""
	})
	if now, _ := w.jobImage(t, "waits"); now == was {
		t.Error("the Job that had work left was not created again")
	}
	w.missing(t, jobs, "done")
}

func finishedPod(t *testing.T, w *world) {
	text := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never, containers: [{name: main, image: example.invalid/once}]}\n"
	e := w.start(t)
	w.sync(t, e, 1, text)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "patch", "pod", "once", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Succeeded"}}`)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", "pod", "once")
	w.awaitDone(t, 1, "Pod once")
	w.missing(t, pods, "once")
}
