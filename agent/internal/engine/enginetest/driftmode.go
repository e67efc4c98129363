package enginetest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var driftModeCases = []testCase{
	{"reports drift and does not heal it, until the next version", driftReported},
	{"reports a deleted object as missing and does not create it", deletionReported},
	{"reports after a restart what was changed before it", driftReportedLater},
	{"ignores drift, until the next version", driftIgnored},
	{"lets an object say itself what is done about drift", driftPerObject},
	{"leaves a field alone that the policy says to ignore", fieldIgnored},
	{"leaves a field of all items of a list alone, and an annotation", itemsIgnored},
	{"leaves a field alone that is ignored and that the manifest drops", ignoredAndDropped},
	{"sends a new item of a list with what is ignored of it, and drops one with it", ignoredOfItems},
	{"sends a field that is ignored when it creates the object", ignoredOnCreation},
	{"keeps its marks whatever the policy says to ignore", marksNotIgnored},
	{"tells an ignored field from one that is not, of one object", ignoredBeside},
}

// outOfSync waits until the object says that it is not in sync, with text.
func (w *world) outOfSync(t testing.TB, name string, texts ...string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		o := find(s, name)
		if o.Sync != fleet.SyncOutOfSync || s.Observed.Sync != fleet.SyncOutOfSync || o.Reason != fleet.ReasonDrifted || s.Observed.Reason != fleet.ReasonDrifted {
			return "want it OutOfSync for its drift"
		}
		for _, text := range texts {
			if !strings.Contains(o.Message, text) || !strings.Contains(s.Observed.Message, text) {
				return fmt.Sprintf("want %q", text)
			}
		}
		return ""
	})
}

// drifts counts the events of an object that say Drifted.
func (w *world) drifts(name string) int {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	count := 0
	for _, event := range w.rec.events {
		if event.Reason == fleet.ReasonDrifted && strings.HasSuffix(event.Object, "/"+name) {
			count++
		}
	}
	return count
}

// covers: D2
func driftReported(t *testing.T, w *world) {
	w.policy.Drift = fleet.DriftReport
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	mark := w.traffic.mark()
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.outOfSync(t, "ConfigMap a", ".data.key", "kubectl-edit")
	w.rec.event(t, fleet.ReasonDrifted, "/a")
	// What nobody manages is no drift, and says nothing again.
	w.edit(t, "kubectl-edit", "a", `{"data":{"theirs":"x"}}`)
	w.fence(t, e)
	if got := w.drifts("a"); got != 1 {
		t.Errorf("%d events, want one for one change", got)
	}
	w.edit(t, "another", "a", `{"data":{"key":"edited again"}}`)
	w.outOfSync(t, "ConfigMap a", ".data.key", "another")
	if got := w.drifts("a"); got != 2 {
		t.Errorf("%d events, want one more for another change", got)
	}
	if got := value(w.get(t, "a"), "key"); got != "edited again" {
		t.Errorf("a is %q, want it left alone", got)
	}
	// Put right by hand.
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"1"}}`)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	for _, write := range w.writes(mark) {
		if strings.HasSuffix(write, " a") || strings.HasSuffix(write, " b") {
			t.Errorf("sent %s, want no write", write)
		}
	}
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.outOfSync(t, "ConfigMap a", ".data.key")
	w.sync(t, e, 2, configMap("a", "1")+configMap("b", "2"))
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it put right by the next version", got)
	}
}

// covers: D2
func deletionReported(t *testing.T, w *world) {
	w.policy.Drift = fleet.DriftReport
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.delete(t, "a")
	w.outOfSync(t, "ConfigMap a", "was deleted")
	if o := object(t, w.rec.status(t, w.target, 1, fleet.SyncOutOfSync), "ConfigMap a"); o.Health != fleet.HealthNotFound {
		t.Errorf("a is %s, want NotFound", o.Health)
	}
	w.rec.event(t, fleet.ReasonDrifted, "was deleted")
	w.fence(t, e)
	if w.exists(t, "a") {
		t.Error("a was created again")
	}
	e.stop()
	w.rec = newRecorder()
	e = w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+configMap("b", "1")))
	w.outOfSync(t, "ConfigMap a", "was deleted")
	w.policy.Drift = fleet.DriftCorrect
	w.sync(t, e, 2, configMap("a", "1")+configMap("b", "1"))
	if !w.exists(t, "a") {
		t.Error("a was not created again with another policy")
	}
}

func driftReportedLater(t *testing.T, w *world) {
	w.policy.Drift = fleet.DriftReport
	text := configMap("a", "1") + configMap("b", "1")
	e := w.start(t)
	w.sync(t, e, 1, text)
	e.stop()
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	e = w.start(t)
	e.Set(w.desired(t, 1, text))
	w.outOfSync(t, "ConfigMap a", ".data.key", "kubectl-edit")
	w.edit(t, "another", "a", `{"data":{"key":"more"}}`)
	w.outOfSync(t, "ConfigMap a", "another")
	e.stop()
	// A version that arrives with the restart is a new one all the same.
	e = w.start(t)
	w.sync(t, e, 2, text)
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it put right by the next version", got)
	}
}

// covers: D2
func driftIgnored(t *testing.T, w *world) {
	w.policy.Drift = fleet.DriftIgnore
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	mark := w.traffic.mark()
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.delete(t, "b")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, "ConfigMap b").Health != fleet.HealthNotFound {
			return "want b NotFound"
		}
		return ""
	})
	s := w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced || w.drifts("a")+w.drifts("b") != 0 {
		t.Errorf("status is %s, want nothing said of drift", describe(s))
	}
	if writes := w.writes(mark); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
	w.sync(t, e, 2, configMap("a", "1")+configMap("b", "1")+configMap("c", "1"))
	if got := value(w.get(t, "a"), "key"); got != "1" || !w.exists(t, "b") {
		t.Errorf("a is %q, want both put right by the next version", got)
	}
}

// covers: D2
func driftPerObject(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, annotatedMap("reports", "1", "kedge.dev/drift", "report")+annotatedMap("ignores", "1", "kedge.dev/drift", "ignore")+configMap("corrects", "1"))
	for _, name := range []string{"ignores", "reports", "corrects"} {
		w.edit(t, "kubectl-edit", name, `{"data":{"key":"edited"}}`)
	}
	w.outOfSync(t, "ConfigMap reports", ".data.key")
	w.rec.event(t, fleet.ReasonDriftHealed, "/corrects")
	for name, want := range map[string]string{"reports": "edited", "ignores": "edited", "corrects": "1"} {
		if got := value(w.get(t, name), "key"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func (w *world) patchWeb(t testing.TB, manager, patch string) {
	t.Helper()
	_, err := w.client.Resource(deployments).Namespace(w.ns).
		Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) web(t testing.TB, path string) string {
	t.Helper()
	return w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "deploy", "web", "-o", "jsonpath="+path)
}

// covers: D2
func fieldIgnored(t *testing.T, w *world) {
	w.policy.Ignore = []string{"Deployment.apps/web:/spec/replicas"}
	e := w.start(t)
	w.sync(t, e, 1, strings.Replace(webApp, "replicas: 1", "replicas: 2", 1))
	if got := w.web(t, "{.spec.replicas}"); got != "2" {
		t.Errorf("replicas are %s, want those of the manifest when it is created", got)
	}
	mark := w.traffic.mark()
	w.scale(t, "kubectl", 4)
	w.fence(t, e)
	if writes := w.writes(mark); strings.Contains(fmt.Sprint(writes), "web") {
		t.Errorf("writes are %v, want the edit left alone", writes)
	}
	// Neither drift of another field nor a new version takes it back.
	w.patchWeb(t, "kubectl-edit", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil"}]}}}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "image")
	w.sync(t, e, 2, strings.Replace(webApp, "web:1", "web:2", 1))
	if got := w.web(t, "{.spec.replicas} {..image}"); got != "4 example.invalid/web:2" {
		t.Errorf("replicas and image are %q, want those of the edit and of the manifest", got)
	}
	// Without the rule the field is somebody else's, which is a conflict unless force decides it.
	w.policy.Ignore, w.policy.Force = nil, true
	w.sync(t, e, 3, strings.Replace(webApp, "replicas: 1", "replicas: 3", 1))
	if got := w.web(t, "{.spec.replicas}"); got != "3" {
		t.Errorf("replicas are %s, want those of the manifest without the rule", got)
	}
	// What nobody has touched stays as it was made, though the manifest says something else.
	w.policy.Ignore = []string{"*:/spec/replicas"}
	w.sync(t, e, 4, strings.Replace(webApp, "web:1", "web:4", 1))
	if got := w.web(t, "{.spec.replicas} {..image}"); got != "3 example.invalid/web:4" {
		t.Errorf("replicas and image are %q, want what was there and what is new", got)
	}
}

// covers: D2
func itemsIgnored(t *testing.T, w *world) {
	w.policy.Ignore = []string{"Deployment.apps:/spec/template/spec/containers/*/image", "*:/metadata/annotations/example.com~1seen"}
	text := strings.Replace(webApp, "metadata: {name: web}\nspec:\n  replicas", "metadata: {name: web, annotations: {example.com/seen: never, example.com/kept: ours}}\nspec:\n  replicas", 1)
	e := w.start(t)
	w.sync(t, e, 1, text)
	mark := w.traffic.mark()
	w.patchWeb(t, "updater", `{"metadata":{"annotations":{"example.com/seen":"today"}},"spec":{"template":{"spec":{"containers":[{"name":"web","image":"example.invalid/web:9"}]}}}}`)
	w.fence(t, e)
	if writes := w.writes(mark); strings.Contains(fmt.Sprint(writes), "web") {
		t.Errorf("writes are %v, want the edits left alone", writes)
	}
	w.patchWeb(t, "updater", `{"metadata":{"annotations":{"example.com/kept":"theirs"}}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "example.com/kept")
	w.sync(t, e, 2, strings.Replace(text, "replicas: 1", "replicas: 2", 1))
	if got := w.web(t, `{.metadata.annotations.example\.com/seen} {.metadata.annotations.example\.com/kept} {..image} {.spec.replicas}`); got != "today ours example.invalid/web:9 2" {
		t.Errorf("the Deployment has %q, want the ignored left alone and the rest applied", got)
	}
}

func ignoredOnCreation(t *testing.T, w *world) {
	w.policy.Ignore = []string{"ConfigMap/a*:/data/key"}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a1", "1")+configMap("b", "1"))
	w.edit(t, "kubectl-edit", "a1", `{"data":{"key":"edited"}}`)
	w.edit(t, "kubectl-edit", "b", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/b")
	w.sync(t, e, 2, configMap("a1", "2")+configMap("b", "2"))
	if a, b := value(w.get(t, "a1"), "key"), value(w.get(t, "b"), "key"); a != "edited" || b != "2" {
		t.Errorf("a1 is %q and b %q, want just a1 left alone", a, b)
	}
	w.delete(t, "a1")
	w.rec.event(t, fleet.ReasonDriftHealed, "/a1")
	if got := value(w.get(t, "a1"), "key"); got != "2" {
		t.Errorf("a1 is %q, want the manifest when it is created", got)
	}
}

func marksNotIgnored(t *testing.T, w *world) {
	w.policy.Ignore = []string{"*:/metadata", "*:/kind"}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "somebody", "a", `{"metadata":{"labels":{"kedge.dev/target":null}}}`)
	eventuallyLabelled(t, w, "a")
	w.sync(t, e, 2, configMap("a", "2"))
	if a := w.get(t, "a"); value(a, "key") != "2" || a.GetLabels()["kedge.dev/target"] != string(w.target) {
		t.Errorf("a is %v, want it applied and marked", a.Object)
	}
	w.sync(t, e, 3, configMap("b", "1"))
	if w.exists(t, "a") {
		t.Error("a is there: it was not known as ours any more")
	}
}

func ignoredBeside(t *testing.T, w *world) {
	w.policy.Ignore = []string{"ConfigMap:/data/free"}
	w.policy.Drift = fleet.DriftReport
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: \"1\", free: \"1\"}\n"
	e := w.start(t)
	w.sync(t, e, 1, text)
	w.edit(t, "kubectl-edit", "a", `{"data":{"free":"edited"}}`)
	w.fence(t, e)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.outOfSync(t, "ConfigMap a", ".data.key")
	s := w.rec.status(t, w.target, 1, fleet.SyncOutOfSync)
	if strings.Contains(s.Observed.Message, "free") || w.drifts("a") != 1 {
		t.Errorf("message is %q, want nothing of the field that is ignored", s.Observed.Message)
	}
	e.stop()
	e = w.start(t)
	w.sync(t, e, 2, text)
	if a := w.get(t, "a"); value(a, "key") != "1" || value(a, "free") != "edited" {
		t.Errorf("data is %v, want the ignored field left alone", a.Object["data"])
	}
}
