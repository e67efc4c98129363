package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

var impersonationCases = []testCase{
	{"applies with the rights of the deployment's ServiceAccount and no more", appliesAsAccount},
	{"prunes with the rights of the deployment's ServiceAccount and no more", prunesAsAccount},
	{"heals drift with the rights of the deployment's ServiceAccount", healsAsAccount},
}

// deployer makes a ServiceAccount in the world's namespace that may do everything with ConfigMaps there.
func (w *world) deployer(t testing.TB, name string) {
	t.Helper()
	w.account(t, name, `["get", "create", "patch", "delete"]`)
}

func (w *world) account(t testing.TB, name, verbs string) {
	t.Helper()
	w.h.Cluster.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: %[3]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, name, w.ns, verbs))
}

// covers: A18, A2 (granting the missing right heals it with no new commit)
func appliesAsAccount(t *testing.T, w *world) {
	w.deployer(t, "deployer")
	w.policy.ServiceAccount = w.ns + "/deployer"
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+serviceText))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "Service web"); o.Reason != fleet.ReasonForbidden || !strings.Contains(o.Message, "system:serviceaccount:"+w.ns+":deployer") {
		t.Errorf("web says %q, want who may not", o.Message)
	}
	if !w.exists(t, "a") {
		t.Error("a is not there, want what is allowed applied")
	}
	w.h.Cluster.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer, namespace: %s}
rules: [{apiGroups: [""], resources: [configmaps, services], verbs: [get, create, patch, delete]}]
`, w.ns))
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
}

// covers: A18
func prunesAsAccount(t *testing.T, w *world) {
	w.account(t, "careful", `["get", "create", "patch"]`)
	w.policy.ServiceAccount = w.ns + "/careful"
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.Set(w.desired(t, 2, configMap("a", "1")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap b"); !w.exists(t, "b") || o.Reason != fleet.ReasonForbidden {
		t.Errorf("b says %q, want it kept for the missing right", o.Message)
	}
}

// covers: A18, D1
func healsAsAccount(t *testing.T, w *world) {
	w.deployer(t, "deployer")
	w.policy.ServiceAccount = w.ns + "/deployer"
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "somebody", "a", `{"data":{"key":"2"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it restored", got)
	}
	// Without the right to change it, it stays as it is, and that is said.
	w.account(t, "deployer", `["get"]`)
	w.edit(t, "somebody", "a", `{"data":{"key":"3"}}`)
	w.rec.status(t, w.target, 1, fleet.SyncFailed)
}
