package enginetest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// deletes lists what was deleted since mark.
func (w *world) deletes(mark int) []string {
	var out []string
	for _, write := range w.writes(mark) {
		if strings.HasPrefix(write, http.MethodDelete) {
			out = append(out, write)
		}
	}
	return out
}

// notReplaced waits until a generation has failed, and checks that the object failed for a reason, with texts and without the
// advice to have it replaced in its message, and that nothing was deleted.
func (w *world) notReplaced(t testing.TB, generation int64, name string, reason fleet.Reason, texts ...string) {
	t.Helper()
	o := object(t, w.rec.status(t, w.target, generation, fleet.SyncFailed), name)
	if o.Reason != reason {
		t.Errorf("%s is %s %q, want %s", name, o.Reason, o.Message, reason)
	}
	message := o.Message
	for _, text := range texts {
		if !strings.Contains(message, text) {
			t.Errorf("%s says %q, want %q in it", name, message, text)
		}
	}
	if strings.Contains(message, "replace: true") {
		t.Errorf("%s says %q, want no advice to have it replaced", name, message)
	}
	if deleted := w.deletes(0); len(deleted) > 0 {
		t.Errorf("sent %v, want nothing deleted", deleted)
	}
}

// frozen is an admission policy that lets no ConfigMap of a namespace be changed. It answers as an
// invalid object is answered.
const frozen = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: "frozen-$NS"}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["UPDATE"], resources: ["configmaps"]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  validations:
  - {expression: "false", message: "data: Forbidden: field is immutable"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: "frozen-$NS"}
spec: {policyName: "frozen-$NS", validationActions: [Deny]}
`

// freeze has the API server refuse every change of ConfigMaps in the namespace.
func (w *world) freeze(t testing.TB) {
	t.Helper()
	group := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	w.dropLater(t, group.WithResource("validatingadmissionpolicies"), "frozen-"+w.ns)
	w.dropLater(t, group.WithResource("validatingadmissionpolicybindings"), "frozen-"+w.ns)
	w.h.Cluster.Apply(t, strings.ReplaceAll(frozen, "$NS", w.ns))
	// The API server reads its policies by and by, and nothing but a refusal tells that it has.
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "probe")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for i := 0; ; i++ {
		_, err := w.client.Resource(configMaps).Namespace(w.ns).Patch(ctx, "probe", types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"try":"%d"}}`, i), metav1.PatchOptions{})
		if apierrors.IsInvalid(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// covers: A13
func replaceAdmission(t *testing.T, w *world) {
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.freeze(t)
	e.Set(w.desired(t, 2, configMap("a", "2")))
	w.notReplaced(t, 2, "ConfigMap a", fleet.ReasonAdmissionDenied, "frozen-"+w.ns)
	w.policy.Replace = false
	e.Set(w.desired(t, 3, configMap("a", "2")))
	w.notReplaced(t, 3, "ConfigMap a", fleet.ReasonAdmissionDenied, "frozen-"+w.ns)
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it left as the policy demands", got)
	}
}

// covers: A13
func replaceTransition(t *testing.T, w *world) {
	w.dropDefinitions(t)
	grows := strings.Replace(widgets, "{type: integer}",
		`{type: integer, x-kubernetes-validations: [{rule: "self >= oldSelf", message: "field is immutable downwards"}]}`, 1)
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, grows+widget)
	e.Set(w.desired(t, 2, grows+strings.Replace(widget, "size: 1", "size: 0", 1)))
	w.notReplaced(t, 2, "Widget w", fleet.ReasonInvalid, "spec.size", "immutable downwards")
}

// covers: A6, A13
func replaceForbidden(t *testing.T, w *world) {
	no := false
	w.owner = ownerpolicy.Policy{Deletions: &no}
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, job("a", "example.invalid/a:1"))
	e.Set(w.desired(t, 2, job("a", "example.invalid/a:2")))
	w.notReplaced(t, 2, "Job a", fleet.ReasonImmutableField, "spec.template", "owner of this cluster")
	w.policy.DryRun = true
	e.Set(w.desired(t, 3, job("a", "example.invalid/a:2")))
	w.notReplaced(t, 3, "Job a", fleet.ReasonImmutableField, "owner of this cluster")
}

// covers: A13
func replaceWithClaims(t *testing.T, w *world) {
	text := func(service, then string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 0
  serviceName: %s
  persistentVolumeClaimRetentionPolicy: {whenDeleted: %s}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "example.invalid/db:1"}]}
`, service, then)
	}
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, text("one", "Delete"))
	e.Set(w.desired(t, 2, text("two", "Retain")))
	w.notReplaced(t, 2, "StatefulSet db", fleet.ReasonImmutableField, "PersistentVolumeClaims", "whenDeleted")
	w.sync(t, e, 3, text("one", "Retain"))
	w.sync(t, e, 4, text("two", "Retain"))
	w.rec.event(t, fleet.ReasonReplaced, "db")
}

// covers: D2
func ignoredAndDropped(t *testing.T, w *world) {
	w.policy.Ignore = []string{"Deployment.apps:/spec/replicas", "*:/metadata/annotations/example.com~1seen"}
	text := strings.Replace(webApp, "metadata: {name: web}\nspec:\n  replicas: 1", "metadata: {name: web, annotations: {example.com/seen: once}}\nspec:\n  replicas: 5", 1)
	e := w.start(t)
	w.sync(t, e, 1, text)
	dropped := strings.Replace(webApp, "  replicas: 1\n", "", 1)
	w.sync(t, e, 2, strings.Replace(dropped, "web:1", "web:2", 1))
	const path = `{.spec.replicas} {..image} {.metadata.annotations.example\.com/seen}`
	if got := w.web(t, path); got != "5 example.invalid/web:2 once" {
		t.Errorf("the Deployment has %q, want what the manifest has dropped left as it is", got)
	}
	w.scale(t, "kube-controller-manager", 7)
	w.sync(t, e, 3, strings.Replace(dropped, "web:1", "web:3", 1))
	if got := w.web(t, path); got != "7 example.invalid/web:3 once" {
		t.Errorf("the Deployment has %q, want the replicas of the autoscaler", got)
	}
}

// covers: D2
func ignoredOfItems(t *testing.T, w *world) {
	w.policy.Ignore = []string{"Deployment.apps:/spec/template/spec/containers/*/image"}
	with := strings.Replace(webApp, `web:1"}`, `web:1"}, {name: side, image: "example.invalid/side:1"}`, 1)
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	w.sync(t, e, 2, with)
	if got := w.web(t, "{..containers[*].image}"); got != "example.invalid/web:1 example.invalid/side:1" {
		t.Errorf("images are %q, want the new item sent with what the rule names", got)
	}
	w.sync(t, e, 3, strings.Replace(webApp, "web:1", "web:2", 1))
	if got := w.web(t, "{..containers[*].image}"); got != "example.invalid/web:1" {
		t.Errorf("images are %q, want what was dropped gone and the other left alone", got)
	}
}
