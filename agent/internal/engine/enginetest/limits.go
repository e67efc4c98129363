package enginetest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

var limitCases = []testCase{
	{"refuses what is beyond the limits of a grant, and applies the rest", beyondLimits},
	{"deletes nothing beyond limits that were narrowed, and releases it with the deployment", narrowedLimits},
	{"adopts nothing beyond the limits", adoptBeyondLimits},
	{"does not let a deployment hold what is beyond its limits", claimBeyondLimits},
}

// covers: T10 (the agent's side)
func beyondLimits(t *testing.T, w *world) {
	other := w.h.Cluster.Namespace(t)
	role := "kedge-test-" + w.ns
	w.dropLater(t, clusterRoles, role)
	e := w.start(t)
	d := w.desired(t, 1, configMap("a", "1")+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"+
		fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: %s}\n", other)+
		fmt.Sprintf("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s}\n", role))
	d.State.Limits = fleet.Limits{Namespaces: []string{w.ns}, Kinds: []string{"*.rbac.authorization.k8s.io", "ConfigMap"}}
	e.Set(d)
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	for _, name := range []string{"ConfigMap b", "Secret s", "ClusterRole " + role} {
		if o := object(t, s, name); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonGrantViolation {
			t.Errorf("%s is %+v, want it refused by the grant", name, o)
		}
	}
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced || !w.exists(t, "a") {
		t.Errorf("a is %+v, want it applied", o)
	}
	_, requests := w.traffic.since(0, w.agentNS)
	for _, r := range requests {
		if strings.Contains(r.path, other) || r.write() && !strings.HasSuffix(r.path, "/a") {
			t.Errorf("sent %v, want nothing beyond the limits", r)
		}
	}
	d = w.desired(t, 2, configMap("a", "1")+fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: %s}\n", other))
	e.Set(d) // the limits were lifted
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
}

func narrowedLimits(t *testing.T, w *world) {
	other := w.h.Cluster.Namespace(t)
	outside := func(name string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n", name, other)
	}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1")+outside("stays")+outside("leaves"))
	narrow := fleet.Limits{Namespaces: []string{w.ns}}
	d := w.desired(t, 2, configMap("a", "1")+outside("stays"))
	d.State.Limits = narrow
	e.Set(d)
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap stays"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonGrantViolation {
		t.Errorf("stays is %+v, want it refused although it is in place", o)
	}
	d = w.desired(t, 3, configMap("a", "1"))
	d.State.Limits = narrow
	e.Set(d)
	s = w.rec.status(t, w.target, 3, fleet.SyncSynced)
	if w.exists(t, "goes") || object(t, s, "ConfigMap stays").Reason != fleet.ReasonGrantViolation {
		t.Errorf("status is %s, want what is within the limits pruned and the rest kept", describe(s))
	}
	tomb := w.tombstone(4)
	tomb.State.Limits = narrow
	e.Set(tomb)
	s = w.rec.status(t, w.target, 4, fleet.SyncDeleted)
	if w.exists(t, "a") || s.Observed.Reason != fleet.ReasonReleased || !strings.Contains(s.Observed.Message, other+"/stays") {
		t.Errorf("status is %s, want what was kept named", describe(s))
	}
	for _, name := range []string{"stays", "leaves"} {
		obj, err := w.client.Resource(configMaps).Namespace(other).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("%s was deleted beyond the limits: %v", name, err)
		}
		if obj.GetLabels()["kedge.dev/target"] != "" {
			t.Errorf("%s is still owned by a deployment that is gone", name)
		}
	}
}

func adoptBeyondLimits(t *testing.T, w *world) {
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "a", "--from-literal=key=theirs")
	e := w.start(t)
	w.policy.Adopt = true
	d := w.desired(t, 1, configMap("a", "ours"))
	d.State.Limits = fleet.Limits{Kinds: []string{"Deployment.apps"}}
	e.Set(d)
	w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if got := value(w.get(t, "a"), "key"); got != "theirs" {
		t.Errorf("a is %q, want it left alone", got)
	}
}

// What a guest desires beyond its grant must not keep the owner from pruning it.
func claimBeyondLimits(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	guest := fleet.NewTargetID()
	d := w.other(t, guest, 1, configMap("b", "guest"))
	d.State.Limits = fleet.Limits{Kinds: []string{"Secret"}}
	e.Set(d)
	w.rec.status(t, guest, 1, fleet.SyncFailed)
	w.sync(t, e, 2, configMap("a", "1"))
	if w.exists(t, "b") {
		t.Error("b is there: a deployment that may not have it has kept it")
	}
}
