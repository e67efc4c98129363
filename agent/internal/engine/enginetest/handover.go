package enginetest

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// What a server says of objects that move: each state names by itself what it hands over.
var handOverCases = []testCase{
	{"keeps what another deployment wants until that has taken it over", handedOverLater},
	{"holds what another deployment does not take, and prunes it when the server no longer says so", handOverTakenBack},
	{"deletes what another deployment does not take when that is confirmed", handOverConfirmed},
	{"keeps what a restarted agent hands over", handedOverAfterRestart},
	{"keeps everything of a deleted deployment that another one takes over, protected kinds too", handedOverByTombstone},
	{"keeps an annotated object of a deleted deployment for another one, without asking for it all the time", handedOverAnnotated},
	{"keeps its label on objects that a detached deployment hands over", handedOverByDetached},
}

// handsOver makes d name what it hands over to the deployment "other"; no names mean everything.
func handsOver(d engine.Desired, objects ...string) engine.Desired {
	d.State.HandOvers = []fleet.HandOver{{Reason: fleet.ReasonHandOverPending, Deployment: "other", Objects: objects}}
	return d
}

// heldFor waits until an object is held for another deployment.
func (w *world) heldFor(t *testing.T, generation int64, name string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		for _, o := range s.Objects {
			if s.Observed.Generation == generation && o.Name == name && o.Sync == fleet.SyncHeld && o.Reason == fleet.ReasonHandOverPending && strings.Contains(o.Message, `"other"`) {
				return ""
			}
		}
		return "want " + name + " to be held for the other deployment"
	})
}

func handedOverLater(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1")+configMap("goes", "1"))
	uid := w.get(t, "x").GetUID()
	e.Set(handsOver(w.desired(t, 2, configMap("stays", "2")), "ConfigMap "+w.ns+"/x"))
	w.heldFor(t, 2, "x")
	w.rec.event(t, fleet.ReasonPruned, "/goes")
	if w.exists(t, "goes") {
		t.Error("goes is there, and nobody wants it")
	}
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "1")))
	w.rec.status(t, other, 1, fleet.SyncSynced)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.ownedBy(t, "x", uid, other)
	w.rec.event(t, fleet.ReasonHandedOver, "/x")
}

func handOverTakenBack(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1"))
	e.Set(handsOver(w.desired(t, 2, configMap("stays", "1")), "ConfigMap "+w.ns+"/x"))
	w.heldFor(t, 2, "x")
	// One that only tries, and one that may not have it, do not change that.
	dryRun := w.other(t, fleet.NewTargetID(), 1, configMap("x", "2"))
	dryRun.State.Policy.DryRun = true
	e.Set(dryRun)
	forbidden := w.other(t, fleet.NewTargetID(), 1, configMap("x", "2"))
	forbidden.Deployment, forbidden.State.Policy.ServiceAccount = "third", w.ns+"/nobody"
	e.Set(forbidden)
	w.rec.status(t, forbidden.Target, 1, fleet.SyncFailed)
	e.Set(handsOver(w.desired(t, 3, configMap("stays", "3")), "ConfigMap "+w.ns+"/x"))
	w.heldFor(t, 3, "x")
	if !w.exists(t, "x") {
		t.Fatal("x was deleted although another deployment wants it")
	}
	w.sync(t, e, 4, configMap("stays", "3"))
	if w.exists(t, "x") {
		t.Error("x is there, and nobody waits for it any more")
	}
}

func handOverConfirmed(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("z", "1")+configMap("stays", "1"))
	d := handsOver(w.desired(t, 2, configMap("stays", "1")))
	e.Set(d)
	w.heldFor(t, 2, "x")
	w.heldFor(t, 2, "z")
	d = handsOver(w.desired(t, 3, configMap("stays", "1")))
	d.State.Confirmed = []string{"ConfigMap " + w.ns + "/x"}
	e.Set(d)
	w.rec.event(t, fleet.ReasonPruned, "/x")
	w.heldFor(t, 3, "z")
	if w.exists(t, "x") || !w.exists(t, "z") {
		t.Error("want just what was confirmed to be gone")
	}
}

func handedOverAfterRestart(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1"))
	uid := w.get(t, "x").GetUID()
	d := handsOver(w.desired(t, 2, configMap("stays", "1")), "ConfigMap "+w.ns+"/x")
	e.Set(d)
	w.heldFor(t, 2, "x")
	e.stop()
	e = w.start(t)
	e.Set(d)
	w.heldFor(t, 2, "x")
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "1")))
	w.rec.status(t, other, 1, fleet.SyncSynced)
	w.ownedBy(t, "x", uid, other)
}

func handedOverAnnotated(t *testing.T, w *world) {
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, annotated("x", "helm.sh/resource-policy: keep"))
	uid := w.get(t, "x").GetUID()
	var reads atomic.Int64
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps/x") {
			reads.Add(1)
		}
		return nil
	})
	e.Set(handsOver(w.tombstone(2)))
	w.heldFor(t, 2, "x")
	w.fence(t, e)
	if n := reads.Load(); n > 10 {
		t.Errorf("x was read %d times while it waits", n)
	}
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, annotated("x", "helm.sh/resource-policy: keep")))
	w.rec.status(t, other, 1, fleet.SyncSynced)
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	w.ownedBy(t, "x", uid, other)
}

func handedOverByTombstone(t *testing.T, w *world) {
	claim := "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n" +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+claim)
	uid := w.get(t, "x").GetUID()
	e.Set(handsOver(w.tombstone(2)))
	w.heldFor(t, 2, "x")
	w.heldFor(t, 2, "data")
	other := w.other(t, fleet.NewTargetID(), 1, configMap("x", "1")+claim)
	other.State.Policy.Adopt = false
	e.Set(other)
	w.rec.status(t, other.Target, 1, fleet.SyncSynced)
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	w.ownedBy(t, "x", uid, other.Target)
}

func handedOverByDetached(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1"))
	uid := w.get(t, "x").GetUID()
	e.Set(handsOver(w.detached(2)))
	w.keptFor(t, 2, fleet.ReasonHandOverPending, `"other"`)
	w.ownedBy(t, "x", uid, w.target)
	other := w.other(t, fleet.NewTargetID(), 1, configMap("x", "1"))
	other.State.Policy.Adopt = false
	e.Set(other)
	w.rec.status(t, other.Target, 1, fleet.SyncSynced)
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	w.ownedBy(t, "x", uid, other.Target)
}
