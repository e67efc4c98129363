package enginetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

var accountDiffCases = []testCase{
	{"compares in a dry run with the rights of the deployment's ServiceAccount and no more", dryRunAsAccount},
	{"compares what has drifted with the rights of the deployment's ServiceAccount and no more", driftAsAccount},
}

// covers: A18, A11
func dryRunAsAccount(t *testing.T, w *world) {
	w.account(t, "reader", `["get"]`)
	w.policy.ServiceAccount, w.policy.DryRun = w.ns+"/reader", true
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonForbidden || !w.namesReader(o.Message) {
		t.Errorf("a is %s %s %q, want who may not", o.Sync, o.Reason, o.Message)
	}
	if writes := w.writesAnywhere(0); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
	w.account(t, "reader", `["get", "create", "patch"]`)
	s = w.rec.status(t, w.target, 1, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap a"); o.Reason != fleet.ReasonDryRun || o.Message != "would be created" {
		t.Errorf("a says %q, want it compared now that it may be", o.Message)
	}
}

// mayNotPatch waits until the API server has heard that an account may not patch ConfigMaps.
func (w *world) mayNotPatch(t *testing.T, account string) {
	t.Helper()
	reviews := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{
			"user":               "system:serviceaccount:" + w.ns + ":" + account,
			"resourceAttributes": map[string]any{"verb": "patch", "resource": "configmaps", "namespace": w.ns, "name": "a"},
		},
	}}
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		answer, err := w.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed"); allowed {
			return errors.New("it still may")
		}
		return nil
	})
}

func (w *world) namesReader(message string) bool {
	return strings.Contains(message, "system:serviceaccount:"+w.ns+":reader")
}

// covers: A18, D2
func driftAsAccount(t *testing.T, w *world) {
	w.account(t, "reader", `["get", "create", "patch"]`)
	w.policy.ServiceAccount, w.policy.Drift = w.ns+"/reader", fleet.DriftReport
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.account(t, "reader", `["get"]`)
	w.mayNotPatch(t, "reader")
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	// That it was changed is seen by the watch of the agent; how, the account may not ask.
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if o := find(s, "ConfigMap a"); o.Reason != fleet.ReasonDrifted || strings.Contains(o.Message, ".data.key") || !w.namesReader(o.Message) {
			return "want it said that a was changed, and who may not find out how"
		}
		return ""
	})
	w.account(t, "reader", `["get", "create", "patch"]`)
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited again"}}`)
	w.outOfSync(t, "ConfigMap a", ".data.key", "kubectl-edit")
}
