package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var failureCases = []testCase{
	{"fails an object that RBAC forbids by its name, and heals when the Role is granted", forbiddenHeals},
	{"watches single namespaces where it may not watch all", perNamespaceWatch},
	{"goes on where it may watch nothing, and says so", unwatched},
	{"refuses other namespaces and cluster-scoped kinds when limited to namespaces", namespacedScope},
	{"never touches its own installation", ownInstallation},
	{"reports a conflict with the field and the other manager", conflictNamed},
	{"retries an object that failed, and leaves the others alone", retriesAlone},
	{"does not apply before the inventory is written", inventoryFirst},
}

// limited makes the engine of the world run as a ServiceAccount that may write its inventory, and
// whatever is granted.
func (w *world) limited(t *testing.T) {
	t.Helper()
	k := w.h.Cluster
	k.Kubectl(t, "-n", w.agentNS, "create", "serviceaccount", "agent")
	k.Kubectl(t, "-n", w.agentNS, "create", "role", "agent", "--verb=get,list,create,update,delete", "--resource=configmaps")
	k.Kubectl(t, "-n", w.agentNS, "create", "rolebinding", "agent", "--role=agent", "--serviceaccount="+w.agentNS+":agent")
	w.rest = k.ServiceAccountConfig(t, w.agentNS, "agent")
}

// grant lets the agent handle ConfigMaps in a namespace.
func (w *world) grant(t *testing.T, namespace string) {
	t.Helper()
	k := w.h.Cluster
	k.Kubectl(t, "-n", namespace, "create", "role", "deployer", "--verb=get,list,watch,create,patch,delete", "--resource=configmaps")
	k.Kubectl(t, "-n", namespace, "create", "rolebinding", "deployer", "--role=deployer", "--serviceaccount="+w.agentNS+":agent")
}

// covers: A2
func forbiddenHeals(t *testing.T, w *world) {
	w.limited(t)
	naww := w.h.Cluster.Namespace(t)
	w.grant(t, w.ns)
	e := w.start(t)
	text := configMap("dude", "1") + fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: naww, namespace: %s}\n", naww)
	e.Set(w.desired(t, 1, text))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonObjectsFailed || !strings.Contains(s.Observed.Message, "ConfigMap "+naww+"/naww") || object(t, s, "ConfigMap naww").Reason != fleet.ReasonForbidden {
		t.Errorf("message is %q, want the object and the reason", s.Observed.Message)
	}
	if o := object(t, s, "ConfigMap dude"); o.Sync != fleet.SyncSynced || !w.exists(t, "dude") {
		t.Errorf("dude is %s, want Synced", o.Sync)
	}
	w.grant(t, naww)
	w.rec.status(t, w.target, 1, fleet.SyncSynced) // within the 10 seconds of invariant 11
}

func perNamespaceWatch(t *testing.T, w *world) {
	w.limited(t)
	w.grant(t, w.ns)
	e := w.start(t)
	s := w.sync(t, e, 1, configMap("a", "1"))
	if o := object(t, s, "ConfigMap a"); o.Reason != fleet.ReasonSynced {
		t.Errorf("a is %s, want %s: it can be watched", o.Reason, fleet.ReasonSynced)
	}
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	w.delete(t, "a")
	w.rec.event(t, fleet.ReasonDriftHealed, "created again")
}

// covers: A1
func namespacedScope(t *testing.T, w *world) {
	other := w.h.Cluster.Namespace(t)
	w.scope, w.allowed = fleet.ScopeNamespaced, []string{w.ns}
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+
		fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: %s}\n", other)+
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-more}\n"))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap b"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonOutsideScope {
		t.Errorf("b is %s %q, want it refused", o.Sync, o.Message)
	}
	if o := object(t, s, "Namespace "+w.ns+"-more"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonOutsideScope {
		t.Errorf("the namespace is %s %q, want it refused", o.Sync, o.Message)
	}
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced {
		t.Errorf("a is %s, want Synced", o.Sync)
	}
	_, requests := w.traffic.since(0, w.agentNS)
	for _, r := range requests {
		if strings.Contains(r.path, other) || strings.Contains(r.path, w.ns+"-more") {
			t.Errorf("sent %v, want no request outside the namespaces", r)
		}
	}
}

func ownInstallation(t *testing.T, w *world) {
	w.policy.Adopt = true
	w.h.Cluster.Kubectl(t, "create", "clusterrole", w.ns+"-agent", "--verb=get", "--resource=pods")
	w.dropLater(t, clusterRoles, w.ns+"-agent")
	w.h.Cluster.Kubectl(t, "label", "clusterrole", w.ns+"-agent", "kedge.dev/install=prod")
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+fmt.Sprintf(`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: inside, namespace: %[1]s}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $NS-agent}
rules: []
`, w.agentNS)))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	for _, name := range []string{"ConfigMap inside", "Namespace " + w.agentNS, "ClusterRole " + w.ns + "-agent"} {
		if o := object(t, s, name); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonOwnInstallation {
			t.Errorf("%s is %s %q, want it refused", name, o.Sync, o.Message)
		}
	}
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced {
		t.Errorf("a is %s, want Synced", o.Sync)
	}
}

// covers: A4
func conflictNamed(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "another-tool", "a", `{"data":{"new":"theirs"}}`)
	e.Set(w.desired(t, 2, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: \"1\", new: ours}\n"))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if object(t, s, "ConfigMap a").Reason != fleet.ReasonFieldConflict || !strings.Contains(s.Observed.Message, ".data.new") || !strings.Contains(s.Observed.Message, "another-tool") {
		t.Errorf("message is %q, want the field and the manager", s.Observed.Message)
	}
	if got := value(w.get(t, "a"), "new"); got != "theirs" {
		t.Errorf("the field is %q, want it left alone", got)
	}
}

// covers: A10
func retriesAlone(t *testing.T, w *world) {
	e := w.start(t)
	failures := make(chan struct{}, 2)
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/b") && len(failures) < cap(failures) {
			failures <- struct{}{}
			return errInterfered
		}
		return nil
	}, nil)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	_, requests := w.traffic.since(0, w.agentNS)
	patches := map[string]int{}
	for _, r := range requests {
		if r.method == http.MethodPatch {
			patches[r.path[strings.LastIndex(r.path, "/")+1:]]++
		}
	}
	if patches["a"] != 1 || patches["b"] != 3 {
		t.Errorf("PATCHes are %v, want 1 of a and 3 of b", patches)
	}
	w.rec.event(t, fleet.ReasonApplyFailed, "/b")
}

func inventoryFirst(t *testing.T, w *world) {
	e := w.start(t)
	var writes, early atomic.Int32
	w.traffic.interfere(func(_ int, r *http.Request) error {
		inventory := strings.Contains(r.URL.Path, w.agentNS)
		switch {
		case inventory && r.Method == http.MethodPost && writes.Add(1) == 1:
			return errInterfered
		case !inventory && r.Method == http.MethodPatch && writes.Load() < 2:
			early.Add(1)
		}
		return nil
	}, nil)
	w.sync(t, e, 1, configMap("a", "1"))
	if early.Load() != 0 {
		t.Error("an object was applied before the inventory that names it was written")
	}
}

func unwatched(t *testing.T, w *world) {
	w.limited(t)
	k := w.h.Cluster
	k.Kubectl(t, "-n", w.ns, "create", "role", "deployer", "--verb=get,create,patch,delete", "--resource=configmaps")
	k.Kubectl(t, "-n", w.ns, "create", "rolebinding", "deployer", "--role=deployer", "--serviceaccount="+w.agentNS+":agent")
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+configMap("b", "1")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced || object(t, s, "ConfigMap a").Reason != fleet.ReasonNotWatched {
			return "want it Synced, and that it is not watched"
		}
		return ""
	})
	w.sync(t, e, 2, configMap("a", "2"))
	if got := value(w.get(t, "a"), "key"); got != "2" || w.exists(t, "b") {
		t.Errorf("a is %q, want 2, and b gone", got)
	}
}
