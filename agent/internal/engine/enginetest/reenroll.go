package enginetest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var reenrollCases = []testCase{
	{"goes on with a target that the server gave to the same agent enrolled again", targetContinued},
	{"watches what is as it was applied by the agent that it was before it was enrolled again", unchangedContinued},
	{"takes over what an earlier target of the deployment left, if its inventory is here", targetReplaced},
	{"leaves the replicas to an autoscaler when it takes over from an earlier target", scaledReplaced},
	{"takes over from an agent that left no inventory, if it is the same deployment and says adopt", agentReplaced},
	{"takes nothing over from an earlier target of another deployment", otherInventory},
	{"leaves an object to an agent that lives in the same cluster", twoAgents},
	{"works on the target of a deployment that came last, and on the one before when that is desired again", superseded},
}

// enrollAgain gives the world another agent, in the same namespace.
func (w *world) enrollAgain() (was fleet.AgentID) {
	was, w.agent = w.agent, fleet.NewAgentID()
	return was
}

func (w *world) forgetInventory(t *testing.T, agent fleet.AgentID) {
	t.Helper()
	if w.h.ArgoCD != "" {
		w.forgetApplications(t, agent)
		return
	}
	err := w.client.Resource(configMaps).Namespace(w.agentNS).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "kedge.dev/inventory,kedge.dev/agent=" + string(agent)})
	if err != nil {
		t.Fatal(err)
	}
}

func targetContinued(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 3, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	uid := w.get(t, "a").GetUID()
	w.enrollAgain()
	e = w.start(t)
	if len(e.held) != 1 || e.held[0].Target != w.target || e.held[0].Generation != 3 {
		t.Errorf("it holds %+v, want what it had as the agent it was", e.held)
	}
	held := w.desired(t, 4, configMap("a", "2"))
	held.State.HoldPrune = true
	e.Set(held)
	w.rec.status(t, w.target, 4, fleet.SyncOutOfSync)
	if a := w.get(t, "a"); a.GetUID() != uid || value(a, "key") != "2" || a.GetLabels()["kedge.dev/agent"] != string(w.agent) || !w.exists(t, "b") {
		t.Errorf("a is %v, want the same object with the new agent's name, and b kept", a.Object)
	}
	e.Set(w.desired(t, 5, configMap("a", "3")))
	w.rec.status(t, w.target, 5, fleet.SyncOutOfSync)
	if !w.exists(t, "b") {
		t.Error("what it listed before it was enrolled again is pruned by the next commit")
	}
	e.Set(w.confirmed(t, 6, configMap("a", "3"), "ConfigMap "+w.ns+"/b"))
	w.rec.status(t, w.target, 6, fleet.SyncSynced)
	if w.exists(t, "b") {
		t.Error("what it listed before it was enrolled again is not pruned when that is confirmed")
	}
	e.stop()
	for _, part := range w.inventoryNames(t) {
		if got := part.GetLabels()["kedge.dev/agent"]; got != string(w.agent) {
			t.Errorf("inventory %s is of agent %s", part.GetName(), got)
		}
	}
}

// covers: D1
func unchangedContinued(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	uid := w.get(t, "a").GetUID()
	w.enrollAgain()
	e = w.start(t)
	w.sync(t, e, 2, configMap("a", "1"))
	if a := w.get(t, "a"); a.GetUID() != uid || a.GetLabels()["kedge.dev/agent"] != string(w.agent) {
		t.Errorf("a is %v, want the same object with the new agent's name", a.Object)
	}
	w.edit(t, "hand", "a", `{"data":{"key":"by hand"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/a")
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it restored", got)
	}
}

func targetReplaced(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 7, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	uid, was := w.get(t, "a").GetUID(), w.target
	w.enrollAgain()
	w.target = fleet.NewTargetID()
	e = w.start(t)
	w.sync(t, e, 1, configMap("a", "2"))
	w.ownedBy(t, "a", uid, w.target)
	w.rec.event(t, fleet.ReasonTakenOver, string(was))
	if got := value(w.get(t, "a"), "key"); got != "2" || !w.exists(t, "b") {
		t.Errorf("a is %q, want it continued, and what the new target does not desire kept", got)
	}
	// Its own end deletes what it holds and nothing else.
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.exists(t, "a") || !w.exists(t, "b") {
		t.Error("want a gone with its deployment, and b left to whoever knows of it")
	}
}

// covers: A4
func scaledReplaced(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	w.scale(t, "kube-controller-manager", 3)
	e.stop()
	w.enrollAgain()
	w.target = fleet.NewTargetID()
	e = w.start(t)
	w.sync(t, e, 1, strings.Replace(webApp, "web:1", "web:2", 1))
	if got := w.web(t, "{.spec.replicas} {..image}"); got != "3 example.invalid/web:2" {
		t.Errorf("replicas and image are %q, want those of the autoscaler and of the manifest", got)
	}
}

func agentReplaced(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	uid, old := w.get(t, "a").GetUID(), w.target
	was := w.enrollAgain()
	w.forgetInventory(t, was)
	w.target = fleet.NewTargetID()
	e = w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "2")))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	hints := []string{"adopt: true", "kedge deploy dismiss app " + string(old), string(was)}
	if w.h.ArgoCD != "" { // its mark names the Application only
		hints = []string{"adopt: true", "kedge-" + string(old)}
	}
	for _, hint := range hints {
		if !strings.Contains(s.Observed.Message, hint) {
			t.Errorf("message is %q, want it to name %q", s.Observed.Message, hint)
		}
	}
	w.policy.Adopt = true
	w.sync(t, e, 2, configMap("a", "2"))
	if w.h.ArgoCD == "" {
		w.rec.event(t, fleet.ReasonTakenOver, string(was))
	} else {
		w.rec.event(t, fleet.ReasonTakenOver, "/a")
	}
	if a := w.get(t, "a"); a.GetUID() != uid || value(a, "key") != "2" {
		t.Errorf("a is %v, want the same object with the new value", a.Object)
	}
}

func otherInventory(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	w.enrollAgain()
	e = w.start(t)
	other := fleet.NewTargetID()
	for _, of := range []struct{ reason, tenant, deployment string }{
		{"another deployment", "default", "other"},
		{"another tenant's deployment of that name", "globex", "app"},
	} {
		d := w.desired(t, 1, configMap("a", "2"))
		d.Target, d.Tenant, d.Deployment = other, of.tenant, of.deployment
		e.Set(d)
		if s := w.rec.status(t, other, 1, fleet.SyncFailed); !hasReason(s, fleet.ReasonOwnedByOther) {
			t.Errorf("%s: message is %q", of.reason, s.Observed.Message)
		}
		other = fleet.NewTargetID()
	}
	if got := value(w.get(t, "a"), "key"); got != "1" {
		t.Errorf("a is %q, want it left alone", got)
	}
}

func twoAgents(t *testing.T, w *world) {
	first := w.start(t)
	w.sync(t, first, 1, configMap("a", "1"))
	second := *w
	second.agent, second.target, second.agentNS, second.rec = fleet.NewAgentID(), fleet.NewTargetID(), w.h.Cluster.Namespace(t), newRecorder()
	e := second.start(t)
	e.Set(second.desired(t, 1, configMap("a", "2")))
	s := second.rec.status(t, second.target, 1, fleet.SyncFailed)
	if !hasReason(s, fleet.ReasonOwnedByOther) || value(w.get(t, "a"), "key") != "1" {
		t.Errorf("message is %q, want what to do, and the object left alone", s.Observed.Message)
	}
	// It is released there: the environment does not select that agent any more.
	first.Set(w.detached(2))
	if w.h.ArgoCD != "" { // it is tracked for an Application that does not exist any more, which does not tell its deployment
		w.rec.status(t, w.target, 2, fleet.SyncDetached)
		second.policy.Adopt = true
		second.sync(t, e, 2, configMap("a", "2"))
	} else {
		second.rec.status(t, second.target, 1, fleet.SyncSynced)
	}
	second.ownedBy(t, "a", w.get(t, "a").GetUID(), second.target)
}

func superseded(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	uid, first := w.get(t, "a").GetUID(), w.target
	gone := func(target, successor fleet.TargetID) {
		t.Helper()
		w.rec.statusWith(t, target, func(s engine.Status) string {
			if s.Observed.Sync != fleet.SyncRewound || s.Observed.Reason != fleet.ReasonRewound || !strings.Contains(s.Observed.Message, string(successor)) {
				return "want it to tell a server that wants it back who has taken over"
			}
			return ""
		})
	}
	// The server has forgotten the deployment, and somebody has made it again.
	second := w.desired(t, 1, configMap("a", "2"))
	second.Target = fleet.NewTargetID()
	e.Set(second)
	if w.h.ArgoCD == "" {
		w.rec.status(t, second.Target, 1, fleet.SyncSynced)
	} else if s := w.rec.settled(t, second.Target, 1); object(t, s, "ConfigMap b").Sync != fleet.SyncHeld {
		t.Errorf("status is %s, want the Application taken over, and what is not in the source any more held", describe(s))
	}
	gone(first, second.Target)
	w.ownedBy(t, "a", uid, second.Target)
	w.edit(t, "somebody", "b", `{"data":{"key":"edited"}}`)
	// And now a backup was restored that knows the first one only.
	w.sync(t, e, 2, configMap("a", "3")+configMap("b", "3"))
	gone(second.Target, first)
	w.ownedBy(t, "a", uid, first)
	if got := value(w.get(t, "a"), "key") + value(w.get(t, "b"), "key"); got != "33" {
		t.Errorf("a and b are %q, want the newest", got)
	}
	// What comes late of the one that was superseded takes nothing away.
	late := w.tombstone(2)
	late.Target = second.Target
	e.Set(late)
	w.rec.status(t, second.Target, 2, fleet.SyncDeleted)
	if !w.exists(t, "a") || !w.exists(t, "b") {
		t.Error("the tombstone of a target that was superseded deleted what another one holds")
	}
}
