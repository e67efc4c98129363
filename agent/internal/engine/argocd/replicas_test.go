package argocd_test

import (
	"strings"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// continuesForAnotherAgent gives the target to an agent with another ID, as after the deletion and enrollment of an agent.
func continuesForAnotherAgent(w *world) {
	commit := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	e := w.start()
	w.sync(e, commit)
	e.stop()
	uid := func() string {
		return w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.metadata.uid}")
	}
	before := uid()
	w.agent = fleet.NewAgentID()
	e = w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "2")}))
	if uid() != before {
		w.Error("the Application was created again")
	}
	e.stop()
	// The next one learns of the deletion only.
	w.agent = fleet.NewAgentID()
	e = w.start()
	e.Set(w.tombstone())
	w.await("Deleted", func(s engine.Status) bool {
		return s.Observed.Sync == fleet.SyncDeleted && s.Observed.Reason == fleet.ReasonDeleted
	})
	if w.exists("configmap", "a") {
		w.Error("the object is left")
	}
}

// continuesForAnotherTarget gives the deployment another target, as a server does whose database was restored.
func continuesForAnotherTarget(w *world) {
	e := w.start()
	w.sync(e, w.appFolder("a", "b"))
	before, _ := w.uid("a")
	e.stop()
	first := w.target
	w.target, w.versions = fleet.NewTargetID(), 0
	e = w.start()
	// A target that is detached before it was applied does not take it.
	d := w.desired("")
	d.Source, d.State.Digest, d.State.Detached = nil, "", true
	e.Set(d)
	w.await("Detached", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDetached })
	// Neither does a tombstone, which may be older than the target that has the Application.
	w.target, w.versions = fleet.NewTargetID(), 0
	e.Set(w.tombstone())
	w.await("nothing to delete", func(s engine.Status) bool {
		return s.Observed.Sync == fleet.SyncDeleted && s.Observed.Reason == fleet.ReasonNoInventory
	})
	if !w.exists("configmap", "a") || !w.exists("configmap", "b") {
		w.Error("the tombstone of another target has deleted objects")
	}
	w.target, w.versions = fleet.NewTargetID(), 0
	e.Pending(1)
	commit := w.appFolder("a")
	e.Set(w.desired(commit))
	w.await("other deployments", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonWaitingForDeployments })
	e.Pending(0)
	// The object that the server has lost is held, also in later versions.
	held := func(s engine.Status) bool {
		return s.Observed.Reason == fleet.ReasonPruneHeld && find(s, w.configMap("b")).Sync == fleet.SyncHeld
	}
	w.await("the held object", held)
	e.Set(w.desired(commit))
	w.await("the held object", held)
	e.stop()
	e = w.start()
	if len(e.held) != 1 || e.held[0].Target != w.target {
		w.Errorf("recovered %+v, want target %s instead of %s", e.held, w.target, first)
	}
	e.Set(w.desired(commit))
	w.await("the held object", held)
	if after, _ := w.uid("a"); after != before || !w.exists("configmap", "b") {
		w.Errorf("the object is %s, and was %s", after, before)
	}
	if apps := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "applications", "-l", "kedge.dev/agent="+string(w.agent), "-o", "name"); len(strings.Fields(apps)) != 1 {
		w.Errorf("the agent has the Applications %s", apps)
	}
	e.Set(w.tombstone())
	w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	if w.exists("configmap", "a") || w.exists("configmap", "b") {
		w.Error("objects are left")
	}
}

// yieldsToNewerReplica runs two replicas of one agent, the first of which gets an older version.
func yieldsToNewerReplica(w *world) {
	slow := w.start()
	w.sync(slow, w.push(map[string]string{"a.yaml": configMap("a", "1")}))
	first := w.rec
	w.rec = newRecorder()
	w.versions++ // the older version, which arrives late
	ahead := w.start()
	newest := w.push(map[string]string{"a.yaml": configMap("a", "3")})
	w.sync(ahead, newest)
	ahead.stop()
	late := w.desired(newest)
	late.State.Generation = w.versions - 2
	slow.Set(late)
	first.await(w.T, w.target, "NewerReplica", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonNewerReplica })
}
