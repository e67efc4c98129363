package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var ownershipCases = []testCase{
	{"does not take over an object that exists, unless it is told to adopt", adoption},
	{"says so when it adopts what another tool marks as its own", adoptionFromTools},
	{"never takes over an object of another deployment", otherDeployment},
	{"hands an object over that moves from one deployment to another", handover},
	{"releases an object that another deployment took over", takenAway},
}

// covers: A7
func adoption(t *testing.T, w *world) {
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "a", "--from-literal=key=theirs", "--from-literal=more=theirs")
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "ours")))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if object(t, s, "ConfigMap a").Reason != fleet.ReasonNotAdopted || value(w.get(t, "a"), "key") != "theirs" {
		t.Errorf("message is %q, want the way out, and the object left alone", s.Observed.Message)
	}
	// Giving up on it must not delete it.
	w.sync(t, e, 2, configMap("b", "1"))
	if !w.exists(t, "a") {
		t.Fatal("an object that was never ours was deleted")
	}
	w.policy.Adopt = true
	w.sync(t, e, 3, configMap("a", "ours"))
	if a := w.get(t, "a"); value(a, "key") != "ours" || value(a, "more") != "theirs" {
		t.Errorf("data is %v, want ours in place and the rest kept", a.Object["data"])
	}
	if event := w.rec.event(t, fleet.ReasonAdopted, "/a"); event.Type != fleet.EventNormal || !strings.Contains(event.Message, "kubectl-create") {
		t.Errorf("event is %s %q, want who had it", event.Type, event.Message)
	}
}

// covers: A7
func adoptionFromTools(t *testing.T, w *world) {
	w.foreign(t, "parent", "key")
	controller := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, name: parent, uid: %s, controller: true}", w.get(t, "parent").GetUID())
	owned := map[string]struct{ metadata, want string }{
		"helm":       {"labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: shop}", `Helm release "shop"`},
		"argocd":     {"annotations: {argocd.argoproj.io/tracking-id: 'shop:/ConfigMap:a/b'}", `Argo CD application "shop:/ConfigMap:a/b"`},
		"flux":       {"labels: {kustomize.toolkit.fluxcd.io/name: shop}", `Flux Kustomization "shop"`},
		"controlled": {"ownerReferences: [" + controller + "]", `ConfigMap "parent", which controls it`},
	}
	text := ""
	for name, tt := range owned {
		w.h.Cluster.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: "+w.ns+", "+tt.metadata+"}\ndata: {key: theirs}\n")
		text += configMap(name, "ours")
	}
	w.policy.Adopt = true
	w.sync(t, w.start(t), 1, text)
	for name, tt := range owned {
		if event := w.rec.event(t, fleet.ReasonAdopted, "/"+name); event.Type != fleet.EventWarning || !strings.Contains(event.Message, tt.want) {
			t.Errorf("event is %s %q, want a warning that it belongs to %s", event.Type, event.Message, tt.want)
		}
	}
}

// covers: A7
func otherDeployment(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.policy.Adopt = true
	d := w.desired(t, 1, configMap("a", "2"))
	d.Target, d.Deployment = fleet.NewTargetID(), "other"
	e.Set(d)
	w.rec.statusWith(t, d.Target, func(s engine.Status) string { // Argo CD may refuse it first, until it has seen the project
		owned := slices.ContainsFunc(s.Objects, func(o fleet.ObjectStatus) bool {
			return o.Kind == "ConfigMap" && o.Name == "a" && o.Reason == fleet.ReasonOwnedByOther
		})
		if s.Observed.Sync != fleet.SyncFailed || !owned || !strings.Contains(s.Observed.Message, "default/app") {
			return "want who owns it"
		}
		return ""
	})
	// The owner goes on, and its own deletion leaves nothing to the other.
	w.sync(t, e, 2, configMap("a", "3"))
	if got := value(w.get(t, "a"), "key"); got != "3" {
		t.Errorf("a is %q, want 3", got)
	}
}

func handover(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	uid := w.get(t, "a").GetUID()
	d := w.desired(t, 1, configMap("a", "2"))
	d.Target, d.Deployment = fleet.NewTargetID(), "other"
	e.Set(d) // added there first
	w.sync(t, e, 2, configMap("b", "1"))
	w.rec.status(t, d.Target, 1, fleet.SyncSynced)
	if a := w.get(t, "a"); a.GetUID() != uid || value(a, "key") != "2" || w.targetOf(t, a) != d.Target {
		t.Errorf("a is %v, want the same object, with the new owner", a.Object)
	}
}

func takenAway(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.edit(t, "somebody", "a", `{"metadata":{"labels":{"kedge.dev/target":"tgt-somebodyelse"}}}`)
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap a"); o.Reason != fleet.ReasonOwnedByOther || !strings.Contains(o.Message, "tgt-somebodyelse") {
		t.Errorf("a says %q, want who has it", o.Message)
	}
	if got := w.get(t, "a").GetLabels()["kedge.dev/target"]; got != "tgt-somebodyelse" {
		t.Errorf("the label is %q, want it left alone", got)
	}
}
