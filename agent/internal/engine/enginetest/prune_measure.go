package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	if o := object(t, s, "ConfigMap m3"); o.Reason != fleet.ReasonOverPruneLimit || !strings.Contains(o.Message, "20 of 20") {
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
		return heldWith(s, "Namespace "+name, "ConfigMap "+name+"/precious")
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

// confirmNamespace syncs a namespace with a ConfigMap and more in it, takes all of that out of the bundle and confirms the
// namespace alone.
func (w *world) confirmNamespace(t *testing.T, e engine.Engine, name, more string, meanwhile func()) {
	t.Helper()
	w.dropLater(t, namespaces, name)
	inside := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: " + name + "}\n"
	w.sync(t, e, 1, configMap("a", "1")+inside+more)
	meanwhile()
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Confirmed = []string{"Namespace " + name}
	e.Set(d)
}

// heldWith asks for an object that is confirmed and is not empty yet to be listed as held, with a text in its message.
func heldWith(s engine.Status, name, text string) string {
	if o := find(s, name); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonNotEmpty || !strings.Contains(o.Message, text) || s.Observed.Sync != fleet.SyncOutOfSync {
		return "want " + name + " held, with what is in it"
	}
	return ""
}

// keptNamespace waits until a namespace is kept at generation 2 for a reason, with a text in its message, and is alive.
func (w *world) keptNamespace(t *testing.T, name string, reason fleet.Reason, text string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || find(s, "Namespace "+name).Reason != reason || !strings.Contains(s.Observed.Message, text) {
			return fmt.Sprintf("want the namespace kept for %s with %q", reason, text)
		}
		return ""
	})
	ns, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || ns.GetDeletionTimestamp() != nil {
		t.Fatalf("the namespace is %v (%v), want it alive", ns, err)
	}
}

// covers: A6
func heldInNamespace(t *testing.T, w *world) {
	e, name := w.start(t), w.ns+"-full"
	w.confirmNamespace(t, e, name, "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: "+name+"}\n"+
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n", func() {
		// As controllers do that copy labels.
		w.h.Cluster.Apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: copied, namespace: "+name+", labels: {kedge.dev/target: "+string(w.target)+"}}\n")
	})
	w.keptNamespace(t, name, fleet.ReasonNotEmpty, "PersistentVolumeClaim "+name+"/data")
	w.rec.statusWith(t, w.target, func(s engine.Status) string { return heldWith(s, "Namespace "+name, name+"/data") })
	d := w.desired(t, 3, configMap("a", "1"))
	d.State.Confirmed = []string{"Namespace " + name, "PersistentVolumeClaim " + name + "/data"}
	e.Set(d)
	w.rec.status(t, w.target, 3, fleet.SyncSynced)
	if _, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there (%v), want it deleted with what was confirmed as well", err)
	}
}

// covers: A6
func foreignInNamespace(t *testing.T, w *world) {
	e, name := w.start(t), w.ns+"-full"
	w.confirmNamespace(t, e, name, "", func() {
		theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
			"name": "theirs", "namespace": name, "labels": map[string]any{"kedge.dev/agent": "agt-b", "kedge.dev/target": "tgt-b"},
			"annotations": map[string]any{"kedge.dev/deployment": "other/shop"},
		}}}
		if _, err := w.client.Resource(secrets).Namespace(name).Apply(t.Context(), "theirs", theirs, metav1.ApplyOptions{FieldManager: "kedge"}); err != nil {
			t.Fatal(err)
		}
	})
	w.keptNamespace(t, name, fleet.ReasonNotEmpty, `secrets "theirs" of deployment other/shop`)
	w.rec.statusWith(t, w.target, func(s engine.Status) string { return heldWith(s, "Namespace "+name, `"theirs"`) })
}

// covers: A6 (a failed list never leads to a deletion)
func unknownInNamespace(t *testing.T, w *world) {
	e, name := w.start(t), w.ns+"-full"
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+name+"/secrets") {
			return errInterfered
		}
		return nil
	}, nil)
	w.confirmNamespace(t, e, name, "", func() {})
	w.keptNamespace(t, name, fleet.ReasonClusterUnavailable, "secrets")
	w.traffic.interfere(nil, nil)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if _, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there (%v), want it deleted once that is known", err)
	}
}
