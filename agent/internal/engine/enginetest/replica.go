package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var replicaCases = []testCase{
	{"stops when another replica of the agent is ahead, and goes on with something newer", newerReplica},
	{"deletes nothing outside its namespaces", removalInScope},
	{"deletes an object whose version is not served any more", versionDropped},
	{"goes on deleting an object that nobody watches when something newer arrives", terminatingUnwatched},
	{"says nothing of a lookup that something newer has ended", cancelledLookup},
}

func newerReplica(t *testing.T, w *world) {
	slow := w.start(t)
	w.sync(t, slow, 1, configMap("a", "1"))
	first := w.rec
	w.rec = newRecorder()
	ahead := w.start(t)
	w.sync(t, ahead, 3, configMap("a", "1")+configMap("c", "3"))
	ahead.stop()

	slow.Set(w.desired(t, 2, configMap("a", "2")+configMap("b", "2")))
	s := first.status(t, w.target, 2, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonNewerReplica {
		t.Errorf("the reason is %s, want %s", s.Observed.Reason, fleet.ReasonNewerReplica)
	}
	if w.exists(t, "b") || value(w.get(t, "a"), "key") != "1" {
		t.Error("an older version was applied over a newer one")
	}
	if text := value(&w.inventoryNames(t)[0], "inventory.json"); !strings.Contains(text, `"generation":3`) {
		t.Errorf("the inventory is %s, want that of the newer version", text)
	}
	slow.Set(w.desired(t, 4, configMap("a", "4")))
	first.status(t, w.target, 4, fleet.SyncSynced)
	if w.exists(t, "c") || value(w.get(t, "a"), "key") != "4" {
		t.Error("want c, which only the other replica knew of, pruned, and a at the newest")
	}
}

func removalInScope(t *testing.T, w *world) {
	other := w.h.Cluster.Namespace(t)
	outside := fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: %s}\n", other)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+outside)
	e.stop()
	w.scope, w.allowed = fleet.ScopeNamespaced, []string{w.ns}
	mark := w.traffic.mark()
	e = w.start(t)
	s := w.sync(t, e, 2, configMap("a", "2"))
	if o := object(t, s, "ConfigMap b"); o.Reason != fleet.ReasonOutsideScope {
		t.Errorf("b says %q, want why it is kept", o.Message)
	}
	e.Set(w.tombstone(3))
	s = w.rec.status(t, w.target, 3, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonOutsideScope || !strings.Contains(s.Observed.Message, other+"/b") {
		t.Errorf("message is %q, want what cannot be deleted", s.Observed.Message)
	}
	w.rec.event(t, fleet.ReasonPruned, "/a")
	_, requests := w.traffic.since(mark, w.agentNS)
	for _, r := range requests {
		if strings.Contains(r.path, other) {
			t.Errorf("sent %v, want no request outside the namespaces", r)
		}
	}
}

const versions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {plural: gizmos, singular: gizmo, kind: Gizmo}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func versionDropped(t *testing.T, w *world) {
	name := "gizmos." + w.ns + ".example.com"
	w.dropLater(t, definitions, name)
	for _, o := range w.desired(t, 1, versions).Objects.Objects() { // not by the engine, which would undo the change
		if _, err := w.client.Resource(definitions).Create(t.Context(), o.Unstructured(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e := w.start(t)
	gizmo := "---\napiVersion: $NS.example.com/v1beta1\nkind: Gizmo\nmetadata: {name: g}\n"
	w.sync(t, e, 1, gizmo+configMap("a", "1"))
	w.h.Cluster.Kubectl(t, "patch", "crd", name, "--type=json", "-p", `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	w.unserved(t, w.ns+".example.com/v1beta1")
	w.sync(t, e, 2, configMap("a", "1"))
	gizmos := schema.GroupVersionResource{Group: w.ns + ".example.com", Version: "v1", Resource: "gizmos"}
	if g, err := w.client.Resource(gizmos).Namespace(w.ns).Get(t.Context(), "g", metav1.GetOptions{}); err == nil {
		t.Errorf("%v is there: it was taken for gone because its version is", g.GetName())
	}
}

// unserved waits until the API server does not serve a group version any more.
func (w *world) unserved(t *testing.T, version string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < limit; {
		if out := w.h.Cluster.Kubectl(t, "api-versions"); !strings.Contains(out, version+"\n") {
			return
		}
	}
	t.Fatalf("%s is served after %v", version, limit)
}

func terminatingUnwatched(t *testing.T, w *world) {
	w.limited(t)
	k := w.h.Cluster
	k.Kubectl(t, "-n", w.ns, "create", "role", "deployer", "--verb=get,create,patch,delete", "--resource=configmaps")
	k.Kubectl(t, "-n", w.ns, "create", "rolebinding", "deployer", "--role=deployer", "--serviceaccount="+w.agentNS+":agent")
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":["example.com/hangs"]}}`)
	e.Set(w.desired(t, 2, configMap("a", "2")))
	waits := func(generation int64) {
		w.rec.statusWith(t, w.target, func(s engine.Status) string {
			if s.Observed.Generation != generation || !strings.Contains(s.Observed.Message, "example.com/hangs") {
				return fmt.Sprintf("want generation %d to wait for the finalizer", generation)
			}
			return ""
		})
	}
	waits(2)
	e.Set(w.desired(t, 3, configMap("a", "3")))
	waits(3)
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":null}}`)
	if s := w.rec.status(t, w.target, 3, fleet.SyncSynced); len(s.Objects) != 1 {
		t.Errorf("status is %s, want b gone", describe(s))
	}
}

func cancelledLookup(t *testing.T, w *world) {
	e := w.start(t)
	asked := make(chan struct{}, 10)
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if strings.HasPrefix(r.URL.Path, "/apis/slow.example.com") {
			asked <- struct{}{}
			<-r.Context().Done()
			return r.Context().Err()
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 1, "apiVersion: slow.example.com/v1\nkind: Slow\nmetadata: {name: s}\n"))
	<-asked
	w.sync(t, e, 2, configMap("a", "1"))
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	for _, event := range w.rec.events {
		if event.Reason == fleet.ReasonApplyFailed {
			t.Errorf("event %v, want none: nothing has failed", event)
		}
	}
}
