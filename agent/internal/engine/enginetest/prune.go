package enginetest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var pruneCases = []testCase{
	{"deletes what has left the bundle", prunes},
	{"deletes what has left the bundle while no agent was running", prunesAfterRestart},
	{"keeps what has left the bundle when pruning is off", pruneOff},
	{"keeps what has left the bundle when the server holds the prune", pruneHeld},
	{"keeps an object that is annotated to be kept, until it is not", pruneDisabledByAnnotation},
	{"prunes nothing while an object fails, and says so", pruneWaitsForFailure},
	{"takes an empty bundle for a mistake", emptyBundle},
	{"keeps protected kinds and names them", protectedKinds},
	{"does not delete an object that was given to somebody else", relabelledNotPruned},
	{"shows an object whose finalizer hangs, and goes on when it is gone", hangingFinalizer},
	{"deletes nothing when the inventory is lost", lostInventory},
	{"deletes nothing when the inventory is damaged, and says so", damagedInventory},
	{"deletes users before what they use", reverseOrder},
}

// covers: A5
func prunes(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	s := w.sync(t, e, 2, configMap("a", "1"))
	if w.exists(t, "b") || !w.exists(t, "a") {
		t.Error("want a there and b gone")
	}
	if len(s.Objects) != 1 {
		t.Errorf("status is %s, want a only", describe(s))
	}
	w.rec.event(t, fleet.ReasonPruned, "/b")
}

func prunesAfterRestart(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	w.sync(t, w.start(t), 2, configMap("a", "1"))
	if w.exists(t, "b") || !w.exists(t, "a") {
		t.Error("want a there and b gone")
	}
}

// covers: A5
func pruneOff(t *testing.T, w *world) {
	w.policy.Prune = false
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	s := w.sync(t, e, 2, configMap("a", "1"))
	if !w.exists(t, "b") {
		t.Error("b is gone")
	}
	if o := object(t, s, "ConfigMap b"); o.Reason != fleet.ReasonPruneDisabled {
		t.Errorf("b says %q, want why it is kept", o.Message)
	}
}

func pruneHeld(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.HoldPrune = true
	e.Set(d)
	s := w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap b"); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonHeldAfterRecovery || s.Observed.Reason != fleet.ReasonPruneHeld || !w.exists(t, "b") || !strings.Contains(s.Observed.Message, "b") {
		t.Errorf("status is %s, want b there, held and named", describe(s))
	}
}

// covers: A5
func pruneDisabledByAnnotation(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.edit(t, "somebody", "b", `{"metadata":{"annotations":{"kedge.dev/prune":"disabled"}}}`)
	s := w.sync(t, e, 2, configMap("a", "1"))
	if o := object(t, s, "ConfigMap b"); !w.exists(t, "b") || o.Reason != fleet.ReasonPruneDisabled || !strings.Contains(o.Message, "kedge.dev/prune") {
		t.Errorf("b says %q, want it kept and why", o.Message)
	}
	w.edit(t, "somebody", "b", `{"metadata":{"annotations":{"kedge.dev/prune":null}}}`)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if len(s.Objects) != 1 {
			return "want b gone"
		}
		return ""
	})
	if w.exists(t, "b") {
		t.Error("b is there after the annotation was removed")
	}
}

// covers: A12
func pruneWaitsForFailure(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	refused := "---\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 99999}]}\n"
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("c", "2")+refused))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if !strings.Contains(s.Observed.Message, "Service "+w.ns+"/bad") || object(t, s, "Service bad").Reason != fleet.ReasonInvalid || !hasReason(s, fleet.ReasonPruneBlocked) {
		t.Errorf("status is %s, want the failing object, and that nothing is pruned", describe(s))
	}
	if got := value(w.get(t, "a"), "key"); got != "2" || !w.exists(t, "c") {
		t.Errorf("a is %q, want the others applied", got)
	}
	if !w.exists(t, "b") {
		t.Fatal("b was pruned while an object failed")
	}
	w.sync(t, e, 3, configMap("a", "2")+configMap("c", "2"))
	if w.exists(t, "b") {
		t.Error("b is there after all is well")
	}
}

func emptyBundle(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	s := w.sync(t, e, 2, "")
	if !w.exists(t, "a") || object(t, s, "ConfigMap a").Reason != fleet.ReasonBundleEmpty {
		t.Errorf("status is %s, want a kept and why", describe(s))
	}
	w.policy.AllowEmpty = true
	w.sync(t, e, 3, "")
	if w.exists(t, "a") {
		t.Error("a is there although the deployment allows an empty bundle")
	}
}

func protectedKinds(t *testing.T, w *world) {
	w.dropLater(t, namespaces, w.ns+"-more")
	e := w.start(t)
	inside := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: inside, namespace: $NS-more}\n"
	w.sync(t, e, 1, configMap("a", "1")+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-more}\n"+inside)
	s := w.sync(t, e, 2, configMap("a", "1"))
	if o := object(t, s, "Namespace "+w.ns+"-more"); o.Reason != fleet.ReasonProtectedKind || !strings.Contains(s.Observed.Message, w.ns+"-more") {
		t.Errorf("status is %s, want the namespace kept and named", describe(s))
	}
	ns, err := w.client.Resource(namespaces).Get(t.Context(), w.ns+"-more", metav1.GetOptions{})
	if err != nil || ns.GetDeletionTimestamp() != nil {
		t.Errorf("namespace is %v (%v), want it alive", ns, err)
	}
	// Deleted by hand, it is not mentioned any more.
	w.h.Cluster.Kubectl(t, "delete", "namespace", w.ns+"-more")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if len(s.Objects) != 1 || s.Observed.Reason != fleet.ReasonSynced {
			return "want the namespace forgotten"
		}
		return ""
	})
}

func relabelledNotPruned(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1")+configMap("c", "1"))
	e.stop()
	w.edit(t, "somebody", "b", `{"metadata":{"labels":{"kedge.dev/target":"tgt-somebodyelse"}}}`)
	w.edit(t, "somebody", "c", `{"metadata":{"labels":{"kedge.dev/target":null,"kedge.dev/agent":null}}}`)
	e = w.start(t)
	s := w.sync(t, e, 2, configMap("a", "1"))
	if !w.exists(t, "b") || !w.exists(t, "c") {
		t.Error("an object of somebody else was deleted")
	}
	if len(s.Objects) != 1 {
		t.Errorf("status is %s, want a only", describe(s))
	}
}

func hangingFinalizer(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":["example.com/hangs"]}}`)
	e.Set(w.desired(t, 2, configMap("a", "1")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		for _, o := range s.Objects {
			if o.Name == "b" && o.Health == fleet.HealthTerminating && o.Reason == fleet.ReasonPruning && strings.Contains(s.Observed.Message, "example.com/hangs") {
				return ""
			}
		}
		return "want b Terminating and its finalizer named"
	})
	// A restart in the middle does not lose it.
	e.stop()
	e = w.start(t)
	e.Set(w.desired(t, 2, configMap("a", "1")))
	w.rec.status(t, w.target, 2, fleet.SyncSyncing)
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":null}}`)
	s := w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if len(s.Objects) != 1 {
		t.Errorf("status is %s, want b gone", describe(s))
	}
}

func (w *world) inventoryNames(t testing.TB) []unstructured.Unstructured {
	t.Helper()
	list, err := w.client.Resource(configMaps).Namespace(w.agentNS).List(t.Context(), metav1.ListOptions{LabelSelector: "kedge.dev/inventory"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func lostInventory(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	for _, cm := range w.inventoryNames(t) {
		w.h.Cluster.Kubectl(t, "-n", w.agentNS, "delete", "configmap", cm.GetName())
	}
	e = w.start(t)
	w.sync(t, e, 2, configMap("a", "1"))
	if !w.exists(t, "b") {
		t.Error("b was deleted although nothing says that it was ours")
	}
}

func damagedInventory(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	items := w.inventoryNames(t)
	if len(items) != 1 {
		t.Fatalf("%d inventories, want 1", len(items))
	}
	w.h.Cluster.Kubectl(t, "-n", w.agentNS, "patch", "configmap", items[0].GetName(), "--type=merge", "-p", `{"data":{"inventory.json":"{\"entries\":[]"}}`)
	e = w.start(t)
	w.rec.event(t, fleet.ReasonInventoryDamaged, items[0].GetName())
	w.sync(t, e, 2, configMap("a", "1"))
	e.Set(w.tombstone(3))
	s := w.rec.status(t, w.target, 3, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonInventoryDamaged || !strings.Contains(s.Observed.Message, items[0].GetName()) {
		t.Errorf("message is %q, want the damaged ConfigMap named", s.Observed.Message)
	}
	if !w.exists(t, "a") || !w.exists(t, "b") {
		t.Error("something was deleted")
	}
	if text := value(&w.inventoryNames(t)[0], "inventory.json"); text != `{"entries":[]` {
		t.Errorf("the damaged inventory was overwritten with %q", text)
	}
}

func reverseOrder(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, webApp+configMap("keep", "1"))
	mark := w.traffic.mark()
	w.sync(t, e, 2, configMap("keep", "1"))
	_, requests := w.traffic.since(mark, w.agentNS)
	at := map[string]int{}
	for i, r := range requests {
		for _, kind := range []string{"deployments", "secrets", "clusterroles"} {
			if r.method == "DELETE" && strings.Contains(r.path, "/"+kind+"/") {
				at[kind] = i + 1
			}
		}
	}
	if at["deployments"] == 0 || at["deployments"] > at["secrets"] || at["secrets"] > at["clusterroles"] {
		t.Errorf("deleted in the order %s, want deployments, secrets, clusterroles", fmt.Sprint(at))
	}
}
