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

var createNamespaceCases = []testCase{
	{"creates the namespace of a deployment that asks for it, and keeps it afterwards", createsNamespace},
	{"holds a created namespace that the policy no longer asks for", holdsCreatedNamespace},
	{"leaves a namespace alone that exists already, whoever has it", leavesExistingNamespace},
}

// elsewhere moves the world to a namespace that does not exist.
func (w *world) elsewhere(t testing.TB) {
	t.Helper()
	w.ns += "-new"
	w.dropLater(t, namespaces, w.ns)
	w.policy.CreateNamespace = true
}

func (w *world) namespace(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	ns, err := w.client.Resource(namespaces).Get(t.Context(), w.ns, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading namespace %s: %v", w.ns, err)
	}
	return ns
}

func createsNamespace(t *testing.T, w *world) {
	w.elsewhere(t)
	e := w.start(t)
	early := strings.Replace(configMap("a", "1"), "{name: a}", `{name: a, annotations: {kedge.dev/wave: "-1"}}`, 1)
	s := w.sync(t, e, 1, early)
	if o := object(t, s, "Namespace "+w.ns); o.Sync != fleet.SyncSynced || o.Health != fleet.HealthCurrent {
		t.Errorf("the namespace is %s/%s, want it among the objects", o.Sync, o.Health)
	}
	if labels := w.namespace(t).GetLabels(); labels["kedge.dev/target"] != string(w.target) {
		t.Errorf("its labels are %v, want those of the target", labels)
	}
	w.h.Cluster.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: %s}\n", w.ns))
	e.Set(w.tombstone(2))
	s = w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if s.Observed.Reason != fleet.ReasonReleased || !strings.Contains(s.Observed.Message, "Namespace "+w.ns) {
		t.Errorf("the deletion says %q, want the namespace named as kept", s.Observed.Message)
	}
	ns := w.namespace(t)
	if ns.GetDeletionTimestamp() != nil || ns.GetLabels()["kedge.dev/target"] != "" || !w.exists(t, "theirs") || w.exists(t, "a") {
		t.Errorf("the namespace is %v, want it kept with what others have in it, and released", ns.GetLabels())
	}
}

func holdsCreatedNamespace(t *testing.T, w *world) {
	w.elsewhere(t)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.policy.CreateNamespace = false
	next := w.desired(t, 2, configMap("a", "1"))
	next.State.Consent = true // as an edit of the deployment is
	e.Set(next)
	s := w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	if o := object(t, s, "Namespace "+w.ns); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonProtectedKind {
		t.Errorf("the namespace is %s (%s), want it held", o.Sync, o.Message)
	}
	if !w.exists(t, "a") {
		t.Error("a is gone")
	}
}

func leavesExistingNamespace(t *testing.T, w *world) {
	w.policy.CreateNamespace, w.policy.Adopt = true, true
	e := w.start(t)
	before := w.namespace(t)
	s := w.sync(t, e, 1, configMap("a", "1"))
	if o := object(t, s, "Namespace "+w.ns); o.Reason != fleet.ReasonExistsAlready {
		t.Errorf("the namespace has the reason %s, want %s", o.Reason, fleet.ReasonExistsAlready)
	}
	if after := w.namespace(t); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the namespace was changed: %v", after.GetLabels())
	}
	// A second deployment, and a namespace that the first one has made.
	w.elsewhere(t)
	first := w.desired(t, 2, configMap("b", "1"))
	e.Set(first)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	owner := w.target
	w.target = fleet.NewTargetID()
	second := w.desired(t, 1, configMap("c", "1"))
	second.Deployment = "second"
	e.Set(second)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if labels := w.namespace(t).GetLabels(); labels["kedge.dev/target"] != string(owner) {
		t.Errorf("its labels are %v, want the first deployment to keep it", labels)
	}
	e.Set(engine.Desired{
		Target: w.target, Tenant: "default", Deployment: "second",
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Namespace: w.ns, Policy: w.policy, Tombstone: true},
	})
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if labels := w.namespace(t).GetLabels(); labels["kedge.dev/target"] != string(owner) || !w.exists(t, "b") {
		t.Errorf("its labels are %v after the second deployment was deleted", labels)
	}
}
