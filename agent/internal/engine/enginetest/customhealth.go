package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// customHealthCases are custom kinds whose status another controller writes.
var customHealthCases = []testCase{
	{"reads the health of a custom kind from its conditions", conditionsOfACustomKind},
	{"reads the health of a custom kind by the expressions in its annotations", expressionsOfACustomKind},
	{"says of a custom resource that is being deleted what that waits for, and creates it again", terminatingCustomResource},
}

// machines is a custom kind with a status of its own.
const machines = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// expressive is a custom resource that says how it is read.
const expressive = `---
apiVersion: $NS.example.com/v1
kind: Widget
metadata:
  name: w
  annotations:
    kedge.dev/health-current: object.status.phase == 'Up'
    kedge.dev/health-failed: object.status.phase == 'Broken'
spec: {size: 1}
`

func (w *world) widgets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: w.ns + ".example.com", Version: "v1", Resource: "widgets"}
}

// writeStatus does what the controller of a kind does.
func (w *world) writeStatus(t *testing.T, status string) {
	t.Helper()
	_, err := w.client.Resource(w.widgets()).Namespace(w.ns).
		Patch(t.Context(), "w", types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{FieldManager: "controller"}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// healthOf waits until the widget, and with it the target, is in a health with a message.
// healthReasons are the reasons of objects in sync, by their health.
var healthReasons = map[fleet.Health]fleet.Reason{
	fleet.HealthCurrent: fleet.ReasonSynced, fleet.HealthInProgress: fleet.ReasonProgressing, fleet.HealthFailed: fleet.ReasonHealthCheckFailed,
}

func (w *world) healthOf(t *testing.T, health fleet.Health, message string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		o := find(s, "Widget w")
		reason := healthReasons[health]
		if o.Health != health || o.Reason != reason || s.Observed.Reason != reason || !strings.Contains(o.Message, message) || s.Observed.Health != health || o.Sync != fleet.SyncSynced {
			return fmt.Sprintf("want the widget %s with %q, and the target too", health, message)
		}
		return ""
	})
}

// covers: A8
func conditionsOfACustomKind(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, widget+machines+configMap("a", "1"))
	for _, step := range []struct {
		status  string
		health  fleet.Health
		message string
	}{
		{`{"conditions":[{"type":"Reconciling","status":"True","reason":"Building","message":"is being built"}]}`, fleet.HealthInProgress, "is being built"},
		{`{"conditions":[{"type":"Reconciling","status":"False"},{"type":"Stalled","status":"True","reason":"Quota","message":"there is no more room"}]}`, fleet.HealthFailed, "there is no more room"},
		{`{"conditions":[{"type":"Ready","status":"False","reason":"Starting","message":"is starting"}]}`, fleet.HealthInProgress, "is starting"},
		{`{"observedGeneration":0,"conditions":[{"type":"Ready","status":"True"}]}`, fleet.HealthInProgress, "generation"},
		{`{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}`, fleet.HealthCurrent, ""},
	} {
		w.writeStatus(t, step.status)
		w.healthOf(t, step.health, step.message)
	}
}

// covers: A8 (by CEL)
func expressionsOfACustomKind(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, expressive+machines+configMap("a", "1"))
	w.healthOf(t, fleet.HealthInProgress, "object.status.phase == 'Up'")
	w.writeStatus(t, `{"phase":"Broken"}`)
	w.healthOf(t, fleet.HealthFailed, "object.status.phase == 'Broken'")
	w.writeStatus(t, `{"phase":"Up"}`)
	w.healthOf(t, fleet.HealthCurrent, "")
	// What waits for it begins when the expression says so, on the event of the watch.
	after := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: after, annotations: {kedge.dev/wave: \"1\"}}\ndata: {key: \"2\"}\n"
	w.writeStatus(t, `{"phase":"Starting"}`)
	w.healthOf(t, fleet.HealthInProgress, "")
	e.Set(w.desired(t, 2, expressive+machines+configMap("a", "1")+after))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || s.Observed.Reason != fleet.ReasonDependencyNotReady {
			return "want the later wave to wait for the widget"
		}
		return ""
	})
	if w.exists(t, "after") {
		t.Error("the later wave did not wait")
	}
	w.writeStatus(t, `{"phase":"Up"}`)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	// An expression that makes no sense is never taken for healthy.
	e.Set(w.desired(t, 3, strings.Replace(expressive, "object.status.phase == 'Up'", "object.status.phase ==", 1)+machines+configMap("a", "1")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if o := find(s, "Widget w"); s.Observed.Generation != 3 || o.Health != fleet.HealthUnknown || o.Reason != fleet.ReasonHealthUnknown || !strings.Contains(o.Message, "kedge.dev/health-current") {
			return "want the widget Unknown, and the annotation named"
		}
		return ""
	})
}

// covers: A8
func terminatingCustomResource(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, widget+machines+configMap("a", "1"))
	client := w.client.Resource(w.widgets()).Namespace(w.ns)
	finalizers := func(list string) *unstructured.Unstructured {
		t.Helper()
		obj, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{FieldManager: "controller"})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	was := finalizers(`["example.com/hold"]`).GetUID()
	if err := client.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if o := find(s, "Widget w"); o.Health != fleet.HealthTerminating || o.Reason != fleet.ReasonTerminating || !strings.Contains(o.Message, "example.com/hold") {
			return "want the widget Terminating, and what that waits for"
		}
		return ""
	})
	finalizers(`[]`)
	w.healthOf(t, fleet.HealthCurrent, "")
	if made, err := client.Get(t.Context(), "w", metav1.GetOptions{}); err != nil || made.GetUID() == was {
		t.Errorf("the widget is %v, %v; want another one", made, err)
	}
}
