package enginetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// admissionCases are clusters whose own policies disagree with what a bundle says.
var admissionCases = []testCase{
	{"settles where admission gives a declared field another value", func(t *testing.T, w *world) { w.rewritten(t, `"rewritten"`, "rewritten") }},
	{"settles where admission changes a declared field at every write", func(t *testing.T, w *world) { w.rewritten(t, `object.data.key + "!"`, "1!") }},
	{"settles where admission changes a declared field of what was in place before", rewrittenLater},
	{"fails the object that admission denies with the policy's words, and applies the others", denied},
}

// rewriting is an admission policy that gives data.key of the ConfigMaps of a namespace another value.
const rewriting = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: "rewriting-$NS"}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["configmaps"]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  matchConditions:
  - {name: keyed, expression: "has(object.data) && has(object.data.key)"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: {"key": $VALUE}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: "rewriting-$NS"}
spec: {policyName: "rewriting-$NS"}
`

// denying is an admission policy that lets no ConfigMap b be made or changed in a namespace.
const denying = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: "denying-$NS"}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["configmaps"]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  validations:
  - {expression: "!(object.metadata.name in ['b', 'probe'])", message: "there must be no b, says the owner of the cluster"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: "denying-$NS"}
spec: {policyName: "denying-$NS", validationActions: [Deny]}
`

// admit puts an admission policy in force; kind is mutating or validating. inForce looks at what became of
// an attempt to create a ConfigMap, because the API server reads its policies by and by and does not say so.
func (w *world) admit(t *testing.T, kind, name, text string, inForce func(made *unstructured.Unstructured, err error) bool) {
	t.Helper()
	group := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	w.dropLater(t, group.WithResource(kind+"admissionpolicies"), name+"-"+w.ns)
	w.dropLater(t, group.WithResource(kind+"admissionpolicybindings"), name+"-"+w.ns)
	w.h.Cluster.Apply(t, strings.ReplaceAll(text, "$NS", w.ns))
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "probe"}, "data": map[string]any{"key": "1"},
	}}
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		made, err := w.client.Resource(configMaps).Namespace(w.ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !inForce(made, err) {
			return fmt.Errorf("the policy is not in force: %w", err)
		}
		return nil
	})
}

func (w *world) rewrite(t *testing.T, value, want string) {
	t.Helper()
	w.admit(t, "mutating", "rewriting", strings.ReplaceAll(rewriting, "$VALUE", value), func(made *unstructured.Unstructured, err error) bool {
		return err == nil && valueOf(made) == want
	})
}

func valueOf(obj *unstructured.Unstructured) string { return value(obj, "key") }

// covers: A4, D3, D8
func (w *world) rewritten(t *testing.T, expression, want string) {
	w.rewrite(t, expression, want)
	e := w.start(t)
	text := configMap("a", "1") + configMap("b", "1")
	w.sync(t, e, 1, text)
	w.restsAt(t, want, 2)
	e.stop()
	// A restart finds it as it was left, and the next version applies what it changes.
	w.rec = newRecorder()
	mark := w.traffic.mark()
	e = w.start(t)
	w.sync(t, e, 1, text)
	if writes := w.writes(mark); len(writes) != 0 {
		t.Errorf("writes after a restart are %v, want none", writes)
	}
	w.sync(t, e, 2, configMap("a", "1")+configMap("c", "1"))
	w.restsAt(t, want, 4) // c was created and b deleted
	if w.exists(t, "b") {
		t.Error("b is there: it was not known as ours")
	}
	// An edit is no reason to begin a fight with the policy.
	w.edit(t, "somebody", "a", `{"data":{"theirs":"x"}}`)
	w.fence(t, e)
	w.restsAt(t, want, 7) // the fence has written two, and a policy that adds to the field has a healed
}

// restsAt checks that a stays as it is, with few writes in all, and that the target stays Synced.
func (w *world) restsAt(t *testing.T, want string, most int) {
	t.Helper()
	w.quiet(t, time.Second)
	if got := valueOf(w.get(t, "a")); got != want {
		t.Errorf("a is %q, want %q", got, want)
	}
	if writes := w.writes(0); len(writes) > most {
		t.Errorf("writes are %v, want at most %d", writes, most)
	}
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced {
			return "want it Synced"
		}
		return ""
	})
}

// covers: D3, D8
func rewrittenLater(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.rewrite(t, `"rewritten"`, "rewritten")
	// Whatever is written to it now changes it, and what puts it right is changed as well.
	w.edit(t, "somebody", "a", `{"data":{"theirs":"x"}}`)
	w.fence(t, e)
	w.restsAt(t, "rewritten", 5) // the fence has written two, and a was healed once
	w.sync(t, e, 2, configMap("a", "2")+configMap("b", "1"))
	w.restsAt(t, "rewritten", 6)
	if got := valueOf(w.get(t, "b")); got != "1" {
		t.Errorf("b is %q, want it as nobody has touched it", got)
	}
}

// covers: A12
func denied(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1"))
	w.admit(t, "validating", "denying", denying, func(_ *unstructured.Unstructured, err error) bool {
		return err != nil && strings.Contains(err.Error(), "there must be no b")
	})
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("b", "2")+configMap("c", "2")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap b"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonAdmissionDenied || !strings.Contains(o.Message, "there must be no b, says the owner of the cluster") || w.exists(t, "b") {
		t.Errorf("b is %s %s %q, want it denied in the policy's words", o.Sync, o.Reason, o.Message)
	}
	if s.Observed.Reason != fleet.ReasonObjectsFailed || !strings.Contains(s.Observed.Message, "ConfigMap "+w.ns+"/b") || !hasReason(s, fleet.ReasonPruneBlocked) {
		t.Errorf("status is %s, want the object, and that nothing is pruned", describe(s))
	}
	if a, c := valueOf(w.get(t, "a")), valueOf(w.get(t, "c")); a != "2" || c != "2" {
		t.Errorf("a is %q and c %q, want both applied", a, c)
	}
	if !w.exists(t, "goes") || len(w.deletes(mark)) != 0 {
		t.Errorf("sent %v, want nothing pruned", w.deletes(mark))
	}
	// What goes is pruned when nothing fails any more.
	w.sync(t, e, 3, configMap("a", "2")+configMap("c", "2"))
	if w.exists(t, "goes") {
		t.Error("goes is there")
	}
}
