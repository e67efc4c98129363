package enginetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

var tombstoneHoldCases = []testCase{
	{"holds protected kinds of a deleted deployment until they are confirmed, also after a restart", tombstoneHolds},
	{"releases what a deleted deployment holds when it is told to", tombstoneHoldEnds},
	{"keeps a confirmed Namespace of a deleted deployment while an object is kept in it", tombstoneKeepsInNamespace},
	{"ends a deleted deployment whose held object somebody deletes", tombstoneHeldByHand},
	{"names a held object of a deleted deployment again when reading it failed after a restart", tombstoneHeldUnread},
}

var claims = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}

// claim is a PersistentVolumeClaim.
func claim(name string) string {
	return "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\n" +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
}

// holdingTombstone is a tombstone that holds protected kinds, as for a custom resource that is deleted, with confirmations.
func (w *world) holdingTombstone(generation int64, confirmed ...string) engine.Desired {
	d := w.tombstone(generation)
	d.State.HoldProtected, d.State.Consent, d.State.Confirmed = true, true, confirmed
	return d
}

// heldAtEnd waits until a deleted deployment has exactly these objects, all of them held.
func (w *world) heldAtEnd(t *testing.T, generation int64, names ...string) engine.Status {
	t.Helper()
	slices.Sort(names)
	return w.rec.statusWith(t, w.target, func(s engine.Status) string {
		var held []string
		for _, o := range s.Objects {
			if o.Sync == fleet.SyncHeld {
				held = append(held, o.String())
			}
		}
		slices.Sort(held)
		if o := s.Observed; o.Generation != generation || o.Sync != fleet.SyncOutOfSync || o.Reason != fleet.ReasonPruneHeld || !slices.Equal(held, names) {
			return fmt.Sprintf("want generation %d OutOfSync with %v held, not %v", generation, names, held)
		}
		return ""
	})
}

// claimNames returns the PersistentVolumeClaims that exist and are not being deleted.
func (w *world) claimNames(t *testing.T) (out []string) {
	t.Helper()
	list, err := w.client.Resource(claims).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if c.GetDeletionTimestamp() == nil {
			out = append(out, c.GetName())
		}
	}
	return out
}

func (w *world) namespaceAlive(t *testing.T, name string) bool {
	t.Helper()
	ns, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil && ns.GetDeletionTimestamp() == nil
}

// covers: K2, A6
func tombstoneHolds(t *testing.T, w *world) {
	name := w.ns + "-more"
	w.dropLater(t, namespaces, name)
	one, two, ns := "PersistentVolumeClaim "+w.ns+"/one", "PersistentVolumeClaim "+w.ns+"/two", "Namespace "+name
	e := w.start(t)
	w.sync(t, e, 1, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n"+configMap("a", "1")+claim("one")+claim("two"))
	e.Set(w.holdingTombstone(2))
	s := w.heldAtEnd(t, 2, one, two, ns)
	if o := find(s, one); o.Reason != fleet.ReasonProtectedKind {
		t.Errorf("the claim is %+v, want the reason that holds it", o)
	}
	w.rec.event(t, fleet.ReasonPruneHeld, "")
	if got := w.claimNames(t); len(got) != 2 || !w.namespaceAlive(t, name) || w.exists(t, "a") {
		t.Fatalf("%v are left, want both claims, the namespace, and not a", got)
	}
	e.stop()
	e = w.start(t)
	e.Set(w.holdingTombstone(3, one))
	w.heldAtEnd(t, 3, two, ns)
	if got := w.claimNames(t); !slices.Equal(got, []string{"two"}) || !w.namespaceAlive(t, name) {
		t.Fatalf("%v are left, want what is not confirmed", got)
	}
	e.Set(w.holdingTombstone(4, one, two, ns))
	s = w.rec.status(t, w.target, 4, fleet.SyncDeleted)
	if got := w.claimNames(t); len(got) != 0 || w.namespaceAlive(t, name) || s.Observed.Reason != fleet.ReasonDeleted {
		t.Errorf("%v are left of %s, want nothing", got, describe(s))
	}
}

// covers: K2
func tombstoneHoldEnds(t *testing.T, w *world) {
	one := "PersistentVolumeClaim " + w.ns + "/one"
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+claim("one"))
	e.Set(w.holdingTombstone(2))
	w.heldAtEnd(t, 2, one)
	// A confirmation that arrives with the end of the hold deletes nothing.
	d := w.tombstone(3)
	d.State.Consent, d.State.Confirmed = true, []string{one}
	e.Set(d)
	s := w.rec.status(t, w.target, 3, fleet.SyncDeleted)
	if s.Observed.Reason != fleet.ReasonReleased || !strings.Contains(s.Observed.Message, one) {
		t.Errorf("the target ends as %s, want the claim named", describe(s))
	}
	if got := w.claimNames(t); !slices.Equal(got, []string{"one"}) || w.exists(t, "a") {
		t.Errorf("%v are left, want the claim alone", got)
	}
}

// covers: K2, A6
func tombstoneKeepsInNamespace(t *testing.T, w *world) {
	name := w.ns + "-more"
	w.dropLater(t, namespaces, name)
	ns, kept := "Namespace "+name, "ConfigMap "+name+"/keep"
	e := w.start(t)
	w.sync(t, e, 1, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n---\napiVersion: v1\nkind: ConfigMap\n"+
		"metadata: {name: keep, namespace: "+name+", annotations: {kedge.dev/prune: disabled}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: "+name+"}\n")
	e.Set(w.holdingTombstone(2))
	w.heldAtEnd(t, 2, ns)
	e.Set(w.holdingTombstone(3, ns))
	s := w.heldAtEnd(t, 3, ns)
	if o := find(s, ns); o.Reason != fleet.ReasonNotEmpty || !strings.Contains(o.Message, kept) {
		t.Errorf("the namespace is %+v, want what is kept in it", o)
	}
	e.stop()
	e = w.start(t)
	e.Set(w.holdingTombstone(4, ns))
	w.heldAtEnd(t, 4, ns)
	d := w.tombstone(5)
	d.State.Consent = true
	e.Set(d)
	s = w.rec.status(t, w.target, 5, fleet.SyncDeleted)
	for _, want := range []string{ns, kept} {
		if !strings.Contains(s.Observed.Message, want) {
			t.Errorf("%s is not named in %s", want, describe(s))
		}
	}
	list, err := w.client.Resource(configMaps).Namespace(name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, o := range list.Items {
		found[o.GetName()] = true
	}
	if !w.namespaceAlive(t, name) || !found["keep"] || found["plain"] {
		t.Errorf("%v are left, want keep and its namespace", found)
	}
}

func tombstoneHeldByHand(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+claim("one"))
	e.Set(w.holdingTombstone(2))
	w.heldAtEnd(t, 2, "PersistentVolumeClaim "+w.ns+"/one")
	if err := w.client.Resource(claims).Namespace(w.ns).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
}

// The watch shows the object after a read of it has failed, and there is no other read.
// covers: K2
func tombstoneHeldUnread(t *testing.T, w *world) {
	one := "PersistentVolumeClaim " + w.ns + "/one"
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+claim("one"))
	e.Set(w.holdingTombstone(2))
	w.heldAtEnd(t, 2, one)
	e.stop()

	seen := make(chan struct{})
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/persistentvolumeclaims"):
			return &apiproxy.Fault{Hold: seen}
		case strings.HasSuffix(path, "/persistentvolumeclaims/one"):
			f := failing(http.StatusInternalServerError, "InternalError", "no")
			return &f
		}
		return nil
	})
	e = w.start(t)
	e.Set(w.holdingTombstone(3))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if o := find(s, one); o.Sync != fleet.SyncFailed {
			return fmt.Sprintf("the claim is %+v, want a failed read", o)
		}
		return ""
	})
	close(seen)
	w.heldAtEnd(t, 3, one)
}
