package enginetest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

var driftCases = []testCase{
	{"restores a managed field that was edited, and names who did it", restoresEdit},
	{"keeps a field that it does not manage", keepsUnmanaged},
	{"creates an object again that was deleted", recreates},
	{"writes its inventory once for many that are created again, and knows them after a restart", recreatesMany},
	{"prunes what it has created again, whatever the inventory knew of that when the agent was killed", prunesRecreated},
	{"restores its labels when somebody takes them off", restoresLabels},
	{"restores what was edited while no agent was running", restoresEditFromBefore},
	{"creates again what was deleted while no agent was running", recreatesFromBefore},
	{"restores a field of a list that is keyed by name", restoresListField},
	{"restores a Secret that was given as text", restoresSecret},
	{"yields the replicas to an autoscaler and restores them from a person", yieldsToAutoscaler},
	{"restores less and less often what something else keeps changing, and other objects at once", boundedFight},
	{"applies a change over a field of its own that was edited", changeOverEdit},
	{"applies a change over a field of its own that was edited while no agent was running", changeOverEditFromBefore},
	{"reports a conflict over a field that it never applied, also after a restart", newFieldAfterRestart},
}

// covers: D1
func restoresEdit(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	event := w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	if !strings.Contains(event.Message, ".data.key") || !strings.Contains(event.Message, "kubectl-edit") {
		t.Errorf("event says %q, want the field and who changed it", event.Message)
	}
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want 1", got)
	}
}

// covers: D1
func keepsUnmanaged(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "kubectl-edit", "a", `{"data":{"theirs":"x"}}`)
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	w.sync(t, e, 2, configMap("a", "2"))
	if a := w.get(t, "a"); value(a, "theirs") != "x" || value(a, "key") != "2" {
		t.Errorf("data is %v, want ours restored and theirs kept", a.Object["data"])
	}
}

// covers: D1
func recreates(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.delete(t, "a")
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want 1", got)
	}
	w.sync(t, e, 2, configMap("b", "1"))
	if w.exists(t, "a") {
		t.Error("a is there: the object that was created again was not known as ours")
	}
}

// covers: D1
func recreatesMany(t *testing.T, w *world) {
	const n = 12
	e := w.start(t)
	w.sync(t, e, 1, many(n))
	begun, mark := time.Now(), w.traffic.mark()
	for i := range n {
		w.delete(t, fmt.Sprintf("m%d", i))
		w.rec.event(t, fleet.ReasonDriftHealed, fmt.Sprintf("/m%d", i))
	}
	inventory, _ := w.traffic.since(mark, w.agentNS)
	if most := 1 + int(time.Since(begun)/time.Second); len(inventory) > most {
		t.Errorf("the inventory was written %d times for %d objects, want at most %d: who is healed next waits for it", len(inventory), n, most)
	}
	testkit.Eventually(t, limit, func(ctx context.Context) error { return w.writtenDown(ctx, w.get(t, "m11").GetUID()) })
	e.stop()
	mark = w.traffic.mark()
	w.sync(t, w.start(t), 1, many(n))
	if _, requests := w.traffic.since(mark, w.agentNS); slices.ContainsFunc(requests, request.write) {
		t.Errorf("after a restart it sent %v, want nothing written", requests)
	}
}

// writtenDown fails while no inventory of the agent speaks of an object.
func (w *world) writtenDown(ctx context.Context, uid types.UID) error {
	list, err := w.client.Resource(configMaps).Namespace(w.agentNS).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, chunk := range list.Items {
		if text, err := chunk.MarshalJSON(); err == nil && strings.Contains(string(text), string(uid)) {
			return nil
		}
	}
	return fmt.Errorf("no inventory names UID %s", uid)
}

// covers: A5, D1
func prunesRecreated(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"+w.agentNS) {
			return errInterfered
		}
		return nil
	}, nil)
	w.delete(t, "a")
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	e.stop() // with an inventory that knows of the one before only
	w.traffic.interfere(nil, nil)
	w.sync(t, w.start(t), 2, configMap("b", "1"))
	if w.exists(t, "a") {
		t.Error("what was created again is left behind")
	}
}

func restoresLabels(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	uid := w.get(t, "a").GetUID()
	w.edit(t, "somebody", "a", `{"metadata":{"labels":{"kedge.dev/agent":null}}}`)
	w.edit(t, "somebody", "a", `{"metadata":{"labels":{"kedge.dev/target":null}}}`)
	eventuallyLabelled(t, w, "a")
	if got := w.get(t, "a").GetUID(); got != uid {
		t.Errorf("the object was replaced")
	}
	w.edit(t, "somebody", "a", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, ".data.key")
}

func eventuallyLabelled(t *testing.T, w *world, name string) {
	t.Helper()
	watched, err := w.client.Resource(configMaps).Namespace(w.ns).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for event := range watched.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if ok && obj.GetLabels()["kedge.dev/target"] == string(w.target) && obj.GetLabels()["kedge.dev/agent"] == string(w.agent) {
			return
		}
	}
	t.Fatal("the watch ended before the labels were back")
}

func restoresEditFromBefore(t *testing.T, w *world) {
	e := w.start(t)
	text := configMap("a", "1") + configMap("b", "1") + configMap("c", "1")
	w.sync(t, e, 1, text)
	e.stop()
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.edit(t, "kubectl-edit", "b", `{"data":{"key":null}}`)
	mark := w.traffic.mark()
	e = w.start(t)
	e.Set(w.desired(t, 1, text))
	w.healedFromBefore(t, "a")
	w.healedFromBefore(t, "b")
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if a, b := value(w.get(t, "a"), "key"), value(w.get(t, "b"), "key"); a != "1" || b != "1" {
		t.Errorf("a is %q and b %q, want 1", a, b)
	}
	_, requests := w.traffic.since(mark, w.agentNS)
	for _, r := range requests {
		if r.write() && strings.HasSuffix(r.path, "/c") {
			t.Errorf("sent %v, want c left alone", r)
		}
	}
}

func recreatesFromBefore(t *testing.T, w *world) {
	e := w.start(t)
	text := configMap("a", "1") + configMap("b", "1")
	w.sync(t, e, 1, text)
	e.stop()
	w.delete(t, "a")
	e = w.start(t)
	e.Set(w.desired(t, 1, text))
	w.healedFromBefore(t, "a")
	if !w.exists(t, "a") {
		t.Error("a is not there")
	}
}

// covers: A4
func restoresListField(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil"},{"name":"injected","image":"sidecar"}]}}}}`
	_, err := w.client.Resource(deployments).Namespace(w.ns).
		Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "injector"})
	if err != nil {
		t.Fatal(err)
	}
	event := w.rec.event(t, fleet.ReasonDriftHealed, "web")
	if want := `.spec.template.spec.containers[name="web"].image`; !strings.Contains(event.Message, want) {
		t.Errorf("event says %q, want %s", event.Message, want)
	}
	live, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(live.Object, "spec", "template", "spec", "containers")
	if len(containers) != 2 || containers[0].(map[string]any)["image"] != "example.invalid/web:1" {
		t.Errorf("containers are %v, want ours restored and the injected one kept", containers)
	}
}

func restoresSecret(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "patch", "secret", "web", "--type=merge", "-p", `{"stringData":{"password":"leaked"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "Secret")
	if got := w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "secret", "web", "-o", "jsonpath={.data.password}"); got != "c2VjcmV0" {
		t.Errorf("the password is %q, want the one of the manifest", got)
	}
}

// scale sets the replicas of web as kubectl scale and autoscalers do.
func (w *world) scale(t testing.TB, manager string, replicas int) {
	t.Helper()
	_, err := w.client.Resource(deployments).Namespace(w.ns).Patch(t.Context(), "web", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{FieldManager: manager}, "scale")
	if err != nil {
		t.Fatal(err)
	}
}

// covers: A4
func yieldsToAutoscaler(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	w.scale(t, "kubectl", 4)
	w.rec.event(t, fleet.ReasonDriftHealed, ".spec.replicas")
	w.scale(t, "kube-controller-manager", 3)
	s := w.sync(t, e, 2, strings.Replace(webApp, "web:1", "web:2", 1))
	if o := object(t, s, "Deployment web"); len(s.Objects) != 4 || !strings.Contains(o.Message, "replicas are set by kube-controller-manager") {
		t.Errorf("status is %s, want it said who sets the replicas", describe(s))
	}
	if got := w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "deploy", "web", "-o", "jsonpath={.spec.replicas} {..image}"); got != "3 example.invalid/web:2" {
		t.Errorf("replicas and image are %q, want those of the autoscaler and of the manifest", got)
	}
}

func changeOverEdit(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	// Another manager owns the field by apply, so that a plain apply of a new value conflicts.
	_, err := w.client.Resource(configMaps).Namespace(w.ns).Apply(t.Context(), "a", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"key": "1"},
	}}, metav1.ApplyOptions{FieldManager: "other"})
	if err != nil {
		t.Fatal(err)
	}
	e = w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.Set(w.desired(t, 2, configMap("a", "2")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || s.Observed.Sync != fleet.SyncSynced {
			return "want the change applied: the field was ours before"
		}
		return ""
	})
}

// An edit takes the ownership of a field away. After a restart only the inventory shows that Kedge applied the field.
//
// covers: D1
func changeOverEditFromBefore(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	w.edit(t, "hand", "a", `{"data":{"key":"edited","more":"theirs"}}`)
	e = w.start(t)
	w.sync(t, e, 2, configMap("a", "2"))
	if a := w.get(t, "a"); value(a, "key") != "2" || value(a, "more") != "theirs" {
		t.Errorf("data is %v, want ours changed and theirs kept", a.Object["data"])
	}
}

// covers: A4
func newFieldAfterRestart(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	w.edit(t, "hand", "a", `{"data":{"key":"edited","more":"theirs"}}`)
	e = w.start(t)
	e.Set(w.desired(t, 2, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: \"2\", more: ours}\n"))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if object(t, s, "ConfigMap a").Reason != fleet.ReasonFieldConflict || !strings.Contains(s.Observed.Message, ".data.more") {
		t.Errorf("message is %q, want a conflict over the field that another manager set first", s.Observed.Message)
	}
	if a := w.get(t, "a"); value(a, "key") != "edited" || value(a, "more") != "theirs" {
		t.Errorf("data is %v, want it left alone", a.Object["data"])
	}
}

// covers: D3
func boundedFight(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	heals := func(name string) int {
		count := 0
		for _, event := range w.rec.events {
			if event.Reason == fleet.ReasonDriftHealed && strings.HasSuffix(event.Object, "/"+name) {
				count++
			}
		}
		return count
	}
	for i := 1; i <= 5; i++ {
		w.edit(t, "fighter", "a", fmt.Sprintf(`{"data":{"key":"edit %d"}}`, i))
		w.rec.await(t, func() string {
			if got := heals("a"); got < i {
				return fmt.Sprintf("want heal %d of a", i)
			}
			return ""
		})
	}
	w.edit(t, "fighter", "a", `{"data":{"key":"edit 6"}}`)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if object(t, s, "ConfigMap a").Reason != fleet.ReasonDriftRepeats {
			return "want it said that a is changed again and again"
		}
		return ""
	})
	w.edit(t, "fighter", "b", `{"data":{"key":"edited"}}`)
	w.rec.await(t, func() string {
		if heals("b") == 0 {
			return "want b healed"
		}
		if heals("a") > 5 {
			t.Errorf("a was healed before b: it did not wait")
		}
		return ""
	})
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it restored in the end", got)
	}
}
