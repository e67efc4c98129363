package enginetest

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var detachCrashCases = []testCase{
	{"deletes nothing when the agent is killed while it releases objects", detachKilledAnywhere},
	{"deletes nothing that a prune under way has not, when a detach arrives", detachDuringPrune},
	{"deletes nothing for a tombstone that follows a detach", tombstoneAfterDetach},
}

func detachKilledAnywhere(t *testing.T, w *world) {
	for n := 1; ; n++ {
		done := false
		for _, after := range []bool{false, true} {
			done = !w.killDetachAt(t, n, after) || done
		}
		if done {
			t.Logf("%d requests", n-1)
			break
		}
	}
}

// killDetachAt runs one round on a target of its own; false when there was no request number n.
func (w *world) killDetachAt(t *testing.T, n int, after bool) bool {
	t.Helper()
	when := fmt.Sprintf("killed at request %d (after: %t)", n, after)
	w.target, w.rec, w.traffic, w.ns = fleet.NewTargetID(), newRecorder(), &traffic{}, w.h.Cluster.Namespace(t)
	text := configMap("a", "1") + configMap("b", "1") + configMap("c", "1")

	first := w.start(t)
	w.sync(t, first, 1, text)
	before := []*unstructured.Unstructured{w.get(t, "a"), w.get(t, "b"), w.get(t, "c")}
	killed := w.killRequest(n, after)
	first.Set(w.detached(2))
	reached := w.killedOr(t, killed, 2, fleet.SyncDetached)
	first.stop()
	w.traffic.interfere(nil, nil)

	second := w.start(t)
	at := slices.IndexFunc(second.held, func(h engine.Held) bool { return h.Target == w.target })
	if begun := w.anyReleased(t, before); begun && at >= 0 && second.held[at].Generation != 2 {
		t.Errorf("%s: generation %d is held although the release had begun: a server that is behind would not notice", when, second.held[at].Generation)
	}
	second.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDetached)
	for _, obj := range before {
		w.assertReleased(t, when, obj)
	}
	if at >= 0 && len(s.Objects) != len(before) {
		t.Errorf("%s: status is %s, want every object listed", when, describe(s))
	}
	second.Set(w.tombstone(3))
	w.rec.status(t, w.target, 3, fleet.SyncDeleted)
	for _, obj := range before {
		w.assertReleased(t, when+", then deleted", obj)
	}
	w.sync(t, second, 4, text)
	for _, obj := range before {
		w.ownedBy(t, obj.GetName(), obj.GetUID(), w.target)
	}
	second.stop()
	return reached
}

func (w *world) anyReleased(t *testing.T, objects []*unstructured.Unstructured) bool {
	t.Helper()
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return w.get(t, o.GetName()).GetLabels()["kedge.dev/target"] == ""
	})
}

func detachDuringPrune(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("stays", "1")+configMap("goes", "1"))
	stays, goes := w.get(t, "stays"), w.get(t, "goes")
	deleting := make(chan struct{}, 10)
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodDelete && r.URL.Path == "/api/v1/namespaces/"+w.ns+"/configmaps/goes" {
			deleting <- struct{}{}
			<-r.Context().Done()
			return r.Context().Err()
		}
		if w.asksToPrune(r) {
			deleting <- struct{}{}
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 2, configMap("stays", "1")))
	<-deleting
	e.Set(w.detached(3))
	if s := w.rec.status(t, w.target, 3, fleet.SyncDetached); len(s.Objects) != 2 {
		t.Errorf("status is %s, want both objects", describe(s))
	}
	w.assertReleased(t, "detached during a prune", stays)
	w.assertReleased(t, "detached during a prune", goes)
}

func tombstoneAfterDetach(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	a := w.get(t, "a")
	e.Set(w.detached(2))
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	e.stop()
	e = w.start(t)
	if len(e.held) != 0 {
		t.Errorf("%v is held after it was released", e.held)
	}
	e.Set(w.tombstone(3))
	w.rec.status(t, w.target, 3, fleet.SyncDeleted)
	w.assertReleased(t, "deleted after it was released", a)
}
