package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// others is n ConfigMaps, n0, n1, ….
func others(n int, value string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(configMap(fmt.Sprintf("n%d", i), value))
	}
	return b.String()
}

// covers: A6
func notDiluted(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, many(20))
	e.Set(w.desired(t, 2, others(60, "1")))
	s := w.heldCount(t, 2, 20)
	if o := object(t, s, "ConfigMap m3"); !strings.Contains(o.Message, "20 of 20") {
		t.Errorf("m3 says %q, want how many of how many", o.Message)
	}
	e.Set(w.desired(t, 3, others(60, "2"))) // by now there are 80, and the same 20 are still not confirmed
	w.heldCount(t, 3, 20)
	if got := w.left(t, 20); len(got) != 20 {
		t.Fatalf("%d are left, want all 20", len(got))
	}
	w.sync(t, e, 4, others(57, "2")) // three more are not too many for the 80 that there are
	if w.exists(t, "n58") || len(w.left(t, 20)) != 20 {
		t.Error("want n58 deleted, and what is held still there")
	}
}

// covers: A6, D6
func notDilutedMidway(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, many(20))
	// All that is new is applied but for one: nothing is pruned yet, and the inventory lists 80.
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/n59") {
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 2, others(60, "1")))
	w.rec.status(t, w.target, 2, fleet.SyncFailed)
	e.stop()
	e = w.start(t)
	e.Set(w.desired(t, 2, others(60, "1")))
	w.rec.status(t, w.target, 2, fleet.SyncFailed)
	e.Set(w.desired(t, 3, others(60, "2")))
	w.rec.status(t, w.target, 3, fleet.SyncFailed)
	e.stop()
	w.traffic.interfere(nil, nil)
	e = w.start(t)
	e.Set(w.desired(t, 4, others(60, "2")))
	w.heldCount(t, 4, 20)
	if got := w.left(t, 20); len(got) != 20 {
		t.Errorf("%d are left, want all 20", len(got))
	}
}

// covers: A6
func heldThenTombstone(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, many(20))
	e.Set(w.desired(t, 2, configMap("a", "1")))
	w.heldCount(t, 2, 20)
	e.stop()
	e = w.start(t)
	e.Set(w.tombstone(3))
	w.rec.status(t, w.target, 3, fleet.SyncDeleted)
	if got := w.left(t, 20); len(got) != 0 || len(w.inventoryNames(t)) != 0 {
		t.Errorf("%v are left, want nothing, and no inventory", got)
	}
}

// covers: A6
func inhabitedNamespace(t *testing.T, w *world) {
	name := w.ns + "-shared"
	w.dropLater(t, namespaces, name)
	shared := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+shared)
	guest := fleet.NewTargetID()
	e.Set(w.other(t, guest, 1, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: precious, namespace: "+name+"}\n"))
	w.rec.status(t, guest, 1, fleet.SyncSynced)
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Confirmed = []string{"Namespace " + name}
	e.Set(d)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || !strings.Contains(s.Observed.Message, "deployment default/other") || !strings.Contains(s.Observed.Message, "ConfigMap "+name+"/precious") {
			return "want it kept, and said for whom"
		}
		return ""
	})
	ns, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || ns.GetDeletionTimestamp() != nil {
		t.Fatalf("the namespace is %v (%v), want it alive", ns, err)
	}
	bye := w.other(t, guest, 2, "")
	bye.Objects, bye.State.Digest, bye.State.Tombstone = nil, "", true
	e.Set(bye)
	w.rec.status(t, guest, 2, fleet.SyncDeleted)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if _, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there (%v), want it deleted once nothing is in it", err)
	}
}
