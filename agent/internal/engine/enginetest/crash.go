package enginetest

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var crashCases = []testCase{
	{"mends what a kill at any request has left", killedAnywhere},
}

// killedAnywhere stops an engine just before and just after each of its requests, starts another
// with a newer state, and compares what is there with what shall be there. It shows the part of D6
// that is about a bundle which arrives after a kill in the middle of an apply.
func killedAnywhere(t *testing.T, w *world) {
	for n := 1; ; n++ {
		done := false
		for _, after := range []bool{false, true} {
			done = !w.killAt(t, n, after) || done
		}
		if done {
			t.Logf("%d requests", n-1)
			break
		}
	}
}

// killAt runs one round on a target of its own; false when there was no request number n.
func (w *world) killAt(t *testing.T, n int, after bool) bool {
	t.Helper()
	reached := w.killSecond(t, n, after, configMap("stays", "1")+configMap("changes", "2")+wave("new", "2", 1)+wave("passing", "2", 2))
	third := w.start(t)
	s := w.sync(t, third, 3, configMap("stays", "1")+configMap("changes", "1")+configMap("new", "3")+configMap("returns", "1"))
	third.stop()
	w.compare(t, fmt.Sprintf("killed at request %d (after: %t)", n, after), s, map[string]string{
		"bystander": "", "stays": "1", "changes": "1", "new": "3", "returns": "1",
	})
	return reached
}

// killSecond syncs a target of its own, and kills a second engine at request number n of the next version; false when there was none.
func (w *world) killSecond(t *testing.T, n int, after bool, text string) bool {
	t.Helper()
	w.target, w.rec, w.traffic = fleet.NewTargetID(), newRecorder(), &traffic{}
	w.ns = w.h.Cluster.Namespace(t)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "bystander")

	first := w.start(t)
	w.sync(t, first, 1, configMap("stays", "1")+configMap("changes", "1")+configMap("goes", "1")+configMap("returns", "1"))
	first.stop()

	second := w.start(t)
	killed := w.killRequest(n, after)
	second.Set(w.desired(t, 2, text))
	reached := w.killedOr(t, killed, 2, fleet.SyncSynced)
	second.stop()
	w.traffic.interfere(nil, nil)
	return reached
}

// killRequest lets no request from the nth on get through, as if the engine had been killed just
// before it was sent, or just after it was carried out and before anybody has learnt of it.
func (w *world) killRequest(n int, after bool) (killed chan struct{}) {
	killed, base := make(chan struct{}), w.traffic.mark()
	kill := func(number int, r *http.Request) {
		if number-base == n {
			close(killed)
		}
		if number-base >= n {
			<-r.Context().Done()
		}
	}
	if after {
		w.traffic.interfere(nil, kill)
	} else {
		w.traffic.interfere(func(number int, r *http.Request) error { kill(number, r); return r.Context().Err() }, nil)
	}
	return killed
}

// killedOr waits for the kill, or for the state to be reached without it.
func (w *world) killedOr(t *testing.T, killed chan struct{}, generation int64, state fleet.SyncState) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		w.rec.mu.Lock()
		s, changed := w.rec.statuses[w.target], w.rec.changed
		w.rec.mu.Unlock()
		if s.Observed.Generation == generation && s.Observed.Sync == state {
			return false
		}
		select {
		case <-killed:
			return true
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("neither killed nor done: %s", describe(s))
		}
	}
}

func (w *world) compare(t *testing.T, when string, s engine.Status, want map[string]string) {
	t.Helper()
	list, err := w.client.Resource(configMaps).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for i := range list.Items {
		if name := list.Items[i].GetName(); name != "kube-root-ca.crt" {
			got[name] = value(&list.Items[i], "key")
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the cluster holds %v, want %v", when, got, want)
	}
	if len(s.Objects) != len(want)-1 {
		t.Errorf("%s: status is %s", when, describe(s))
	}
}
