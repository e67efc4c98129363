package argocd_test

import (
	"errors"

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

// keepsForOthers moves an object to another deployment of the agent.
func keepsForOthers(w *world) {
	w.source.Objects = []string{"ConfigMap " + w.ns + "/a", "ConfigMap " + w.ns + "/b"}
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}))
	other := w.desired(w.push(map[string]string{"other/b.yaml": configMap("b", "2")}))
	other.Target, other.Deployment = fleet.NewTargetID(), "other"
	other.Source.Path, other.Source.Objects = "other", []string{"ConfigMap " + w.ns + "/b"}
	e.Set(other)
	w.source.Objects = []string{"ConfigMap " + w.ns + "/a"}
	e.Set(w.desired(w.push(map[string]string{"b.yaml": "", "other/b.yaml": "", "c.yaml": configMap("c", "1")})))
	w.await("held", func(s engine.Status) bool {
		return find(s, "ConfigMap "+w.ns+"/b").Reason == fleet.ReasonHandOverPending
	})
	e.Set(w.tombstone())
	w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	w.eventually(func() error {
		if w.exists("configmap", "a") {
			return errors.New("a is left")
		}
		return nil
	})
	if !w.exists("configmap", "b") {
		w.Error("an object that another deployment desires was deleted")
	}
}
