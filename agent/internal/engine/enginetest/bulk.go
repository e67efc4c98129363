package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

var bulkCases = []testCase{
	{"applies many new objects without reading each of them", bulkCheap},
	{"takes over none of many new objects that somebody else has put there", bulkForeign},
	{"takes over none of many new objects that somebody else puts there meanwhile", bulkForeignMeanwhile},
	{"gives back what it has added to an object that somebody else puts there meanwhile", func(t *testing.T, w *world) { w.foreignOther(t, 40) }},
	{"gives that back too where it has looked at the object alone, just before", func(t *testing.T, w *world) { w.foreignOther(t, 10) }},
	{"takes nothing of an object that somebody else puts in the place of one that was edited and deleted", foreignInPlace},
	{"looks at many new objects when their wave begins, not before", bulkInLaterWave},
	{"carries a thousand deployments", bulkTargets},
	{"looks at many hundreds of new objects as their turn comes, not all at the start", bulkInTurn},
	{"carries a deployment of many hundreds of objects", bulkObjects},
}

func bulkCheap(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, many(60))
	_, requests := w.traffic.since(0, w.agentNS)
	count := map[string]int{}
	for _, r := range requests {
		count[r.method]++
	}
	if count[http.MethodPatch] != 60 || count[http.MethodGet] > 10 {
		t.Errorf("%v requests for 60 new objects, want 60 writes and few reads", count)
	}
}

// foreign puts an object there that is nobody's of ours.
func (w *world) foreign(t *testing.T, name, key string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{key: "foreign"},
	}}
	_, err := w.client.Resource(configMaps).Namespace(w.ns).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		t.Error(err)
	}
}

// covers: A7
func bulkForeign(t *testing.T, w *world) {
	w.foreign(t, "m7", "key")
	e := w.start(t)
	w.policy.Force = true // is for fields of what is ours, not for objects that are not
	e.Set(w.desired(t, 1, many(40)))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	w.untouched(t, "m7", object(t, s, "ConfigMap m7"))
}

// covers: A7
func bulkForeignMeanwhile(t *testing.T, w *world) {
	e := w.start(t)
	w.policy.Force = true
	var made atomic.Bool
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/m9") && !made.Swap(true) {
			w.foreign(t, "m9", "key") // after the list, and just before it is applied
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 1, many(40)))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	w.untouched(t, "m9", object(t, s, "ConfigMap m9"))
}

func (w *world) untouched(t *testing.T, name string, o fleet.ObjectStatus) {
	t.Helper()
	live := w.get(t, name)
	if value(live, "key") != "foreign" || len(live.GetLabels()) != 0 || o.Reason != fleet.ReasonNotAdopted {
		t.Errorf("%s is %v and says %q, want it left alone and why", name, live.Object, o.Message)
	}
	for i := range 40 {
		if other := fmt.Sprintf("m%d", i); other != name && value(w.get(t, other), "key") != "1" {
			t.Errorf("%s is not as desired", other)
		}
	}
}

// covers: A7
func (w *world) foreignOther(t *testing.T, n int) {
	e := w.start(t)
	var made atomic.Bool
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/m9") && !made.Swap(true) {
			w.foreign(t, "m9", "other") // no field of it is one of ours, so that nothing conflicts
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 1, many(n)))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	live := w.get(t, "m9")
	if o := object(t, s, "ConfigMap m9"); value(live, "other") != "foreign" || value(live, "key") != "" || len(live.GetLabels()) != 0 || o.Reason != fleet.ReasonNotAdopted {
		t.Errorf("m9 is %v and says %q, want it as it was and why", live.Object, o.Message)
	}
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if !w.exists(t, "m9") {
		t.Error("what is somebody else's was deleted")
	}
}

// covers: A7
func foreignInPlace(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	var step atomic.Int32
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/a") {
			return nil
		}
		switch forced := r.URL.Query().Get("force") == "true"; {
		case forced && step.CompareAndSwap(0, 1):
			w.delete(t, "a") // just before the edit is taken back
		case step.CompareAndSwap(1, 2):
			w.foreign(t, "a", "key") // just before it is created again
		}
		return nil
	}, nil)
	w.edit(t, "somebody", "a", `{"data":{"key":"edited"}}`)
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	live := w.get(t, "a")
	if o := object(t, s, "ConfigMap a"); value(live, "key") != "foreign" || len(live.GetLabels()) != 0 || o.Reason != fleet.ReasonNotAdopted || step.Load() != 2 {
		t.Errorf("a is %v and says %q after step %d, want it as somebody has made it and why", live.Object, o.Message, step.Load())
	}
}

// covers: A7
func bulkInLaterWave(t *testing.T, w *world) {
	e := w.start(t)
	gate := "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: gate, annotations: {kedge.dev/wave: \"-1\"}}\n" +
		"spec: {selector: {matchLabels: {app: gate}}, template: {metadata: {labels: {app: gate}}, spec: {nodeSelector: {$NS: open}, containers: [{name: c, image: x}]}}}\n"
	// Their kind is known, and nothing of them is there: only their wave is in the way.
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch {
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 1, many(40)))
	w.rec.status(t, w.target, 1, fleet.SyncFailed)
	w.traffic.interfere(nil, nil)
	begun := w.traffic.mark()
	e.Set(w.desired(t, 2, gate+many(40)))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || !strings.Contains(s.Observed.Message, "gate") {
			return "want it to wait for the gate"
		}
		return ""
	})
	testkit.Eventually(t, limit, func(context.Context) error {
		if written, _ := w.traffic.since(begun, w.agentNS); len(written) < 2 {
			return errors.New("the gate was not applied and written down yet, with nothing else under way")
		}
		return nil
	})
	w.foreign(t, "m3", "other")
	mark := w.traffic.mark()
	w.h.Cluster.Kubectl(t, "label", "nodes", "--all", w.ns+"=open")
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if all, late := len(w.writesBeforeLists(begun)), len(w.writesBeforeLists(mark)); late != all || late == 0 {
		t.Errorf("the objects were listed %d times before their wave began and %d times afterwards", all-late, late)
	}
	live := w.get(t, "m3")
	if o := object(t, s, "ConfigMap m3"); len(live.GetLabels()) != 0 || value(live, "key") != "" || o.Reason != fleet.ReasonNotAdopted {
		t.Errorf("m3 is %v and says %q, want it left alone", live.Object, o.Message)
	}
}

// writesBeforeLists is, for each list of ConfigMaps after mark, how many objects were written before it.
func (w *world) writesBeforeLists(mark int) (writes []int) {
	_, requests := w.traffic.since(mark, w.agentNS)
	written := 0
	for _, r := range requests {
		switch {
		case r.write():
			written++
		case r.path == "/api/v1/namespaces/"+w.ns+"/configmaps":
			writes = append(writes, written)
		}
	}
	return writes
}

// What a list says of an object is only good if it was made shortly before the object is applied.
//
// covers: A7
func bulkInTurn(t *testing.T, w *world) {
	const n, spoken, left = 1200, 256, 128 // objects, how many a list speaks for, and how many of them may still wait when the next one is made
	e := w.start(t)
	w.sync(t, e, 1, many(n))
	lists := w.writesBeforeLists(0)
	if len(lists) < 4 || len(lists) > 6 {
		t.Errorf("%d objects took %d lists", n, len(lists))
	}
	for i, written := range lists {
		if written < i*spoken-left {
			t.Errorf("list %d was made when %d objects were written, want most of the %d before it", i+1, written, i*spoken)
		}
	}
}

// covers: A15
func bulkTargets(t *testing.T, w *world) {
	const n = 1000
	e := w.start(t)
	targets := make([]fleet.TargetID, n)
	e.Pending(n)
	for i := range targets {
		targets[i] = fleet.NewTargetID()
		d := w.other(t, targets[i], 1, configMap(fmt.Sprintf("t%d", i), "1"))
		d.Deployment = fmt.Sprintf("app-%d", i)
		e.Set(d)
	}
	e.Pending(0)
	for _, target := range targets {
		w.rec.status(t, target, 1, fleet.SyncSynced)
	}
}

// covers: A15 (test/e2e has ten thousand)
func bulkObjects(t *testing.T, w *world) {
	const n = 600
	e := w.start(t)
	if s := w.sync(t, e, 1, many(n)); len(s.Objects) != n {
		t.Errorf("%d objects are listed, want %d", len(s.Objects), n)
	}
	mark := w.traffic.mark()
	w.sync(t, e, 2, strings.Replace(many(n), `name: m500}`+"\n"+`data: {key: "1"}`, `name: m500}`+"\n"+`data: {key: "2"}`, 1))
	if _, others := w.traffic.since(mark, w.agentNS); len(others) != 1 {
		t.Errorf("one change took %v, want one write", others)
	}
}
