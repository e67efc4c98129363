package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var moveCases = []testCase{
	{"prunes nothing while other deployments have not arrived, and hands over what moves to them", movedInOneCommit},
	{"hands over the objects of a deleted deployment to one that has not arrived yet", movedFromTombstone},
	{"prunes what was about to be taken over when the other deployment changes its mind", moveTakenBack},
	{"hands over what the other deployment was refused for as long as it was held", refusedBeforeMove},
	{"prunes what another deployment desires and may not have", forbiddenClaim},
	{"deletes what a dry run of another deployment desires", dryRunClaim},
}

// other is a state of a second deployment.
func (w *world) other(t *testing.T, target fleet.TargetID, generation int64, text string) engine.Desired {
	t.Helper()
	d := w.desired(t, generation, text)
	d.Target, d.Deployment = target, "other"
	return d
}

// keptFor waits until the world's target keeps an object for others, for a reason and with a text in its message.
func (w *world) keptFor(t *testing.T, generation int64, reason fleet.Reason, text string) {
	t.Helper()
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != generation || s.Observed.Sync != fleet.SyncSyncing || s.Observed.Reason != reason || !hasReason(s, reason) || !strings.Contains(s.Observed.Message, text) {
			return fmt.Sprintf("want it to wait for %s with %q", reason, text)
		}
		return ""
	})
}

func (w *world) ownedBy(t *testing.T, name string, uid types.UID, target fleet.TargetID) {
	t.Helper()
	if x := w.get(t, name); x.GetUID() != uid || w.targetOf(t, x) != target {
		t.Errorf("%s is %v, want the same object, with the new owner", name, x.Object)
	}
}

func movedInOneCommit(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1")+configMap("goes", "1"))
	uid := w.get(t, "x").GetUID()
	e.Pending(1)
	e.Set(w.desired(t, 2, configMap("stays", "2")))
	w.keptFor(t, 2, fleet.ReasonWaitingForDeployments, "")
	if got := value(w.get(t, "stays"), "key"); got != "2" || !w.exists(t, "x") || !w.exists(t, "goes") {
		t.Fatalf("stays is %q, want it applied, and x and goes kept", got)
	}
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "1")))
	e.Pending(0)
	w.rec.status(t, other, 1, fleet.SyncSynced)
	s := w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if len(s.Objects) != 1 || w.exists(t, "goes") {
		t.Errorf("status is %s, want x released and the rest pruned", describe(s))
	}
	w.ownedBy(t, "x", uid, other)
	w.rec.event(t, fleet.ReasonHandedOver, "/x")
}

func movedFromTombstone(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+"---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"+
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n")
	uid := w.get(t, "x").GetUID()
	e.Pending(3)
	e.Set(w.tombstone(2))
	w.keptFor(t, 2, fleet.ReasonWaitingForDeployments, "")
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "1")))
	e.Pending(0)
	w.rec.status(t, other, 1, fleet.SyncSynced)
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	w.ownedBy(t, "x", uid, other)
	w.rec.event(t, fleet.ReasonReleased, "data")
}

func moveTakenBack(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1"))
	other := fleet.NewTargetID()
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/x") || r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/applications/kedge-"+string(other)) {
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.other(t, other, 1, configMap("x", "2")+configMap("more", "2")))
	e.Set(w.desired(t, 2, configMap("stays", "1")))
	w.rec.status(t, other, 1, fleet.SyncFailed)
	w.keptFor(t, 2, fleet.ReasonHandOverPending, string(other))
	if !w.exists(t, "x") {
		t.Fatal("x was deleted although it is desired")
	}
	if w.h.ArgoCD != "" { // it retries what its Application has
		w.traffic.interfere(nil, nil)
	}
	e.Set(w.other(t, other, 2, configMap("more", "2")))
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if w.h.ArgoCD != "" {
		w.rec.status(t, other, 2, fleet.SyncSynced)
	}
	if w.exists(t, "x") {
		t.Error("x is there, and nobody desires it")
	}
}

func refusedBeforeMove(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1"))
	uid, other := w.get(t, "x").GetUID(), fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "1")))
	w.rec.status(t, other, 1, fleet.SyncFailed)
	e.Set(w.desired(t, 2, configMap("stays", "1")))
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.rec.status(t, other, 1, fleet.SyncSynced)
	w.ownedBy(t, "x", uid, other)
}

func forbiddenClaim(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("stays", "1"))
	other := fleet.NewTargetID()
	d := w.other(t, other, 1, configMap("x", "2"))
	d.State.Policy.ServiceAccount = w.ns + "/deployer"
	e.Set(d)
	w.rec.status(t, other, 1, fleet.SyncFailed)
	w.sync(t, e, 2, configMap("stays", "1"))
	if w.exists(t, "x") {
		t.Error("x is there, and nobody who desires it may have it")
	}
	// When it may, it gets it.
	if w.h.ArgoCD != "" { // never with a ServiceAccount
		w.finish(t, e, w.other(t, other, 2, configMap("x", "2")))
		return
	}
	w.deployer(t, "deployer")
	w.rec.status(t, other, 1, fleet.SyncSynced)
}

func dryRunClaim(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("held", "1"))
	other := fleet.NewTargetID()
	d := w.other(t, other, 1, configMap("x", "2"))
	d.State.Policy.DryRun = true
	e.Set(d)
	w.rec.statusWith(t, other, func(s engine.Status) string {
		if s.Observed.Generation != 1 || s.Observed.Sync == fleet.SyncSyncing {
			return "want the dry run done"
		}
		return ""
	})
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.exists(t, "x") {
		t.Error("x is there, and a dry run takes nothing over")
	}
	// What a target holds it keeps in a dry run too.
	w.target, w.policy.DryRun = fleet.NewTargetID(), false
	w.sync(t, e, 1, configMap("held", "1"))
	w.policy.DryRun = true
	e.Set(w.desired(t, 2, configMap("held", "2")))
	w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	taker := w.other(t, fleet.NewTargetID(), 1, configMap("held", "3"))
	taker.Deployment, taker.State.Policy = "taker", fleet.Policy{Prune: true}
	e.Set(taker)
	w.rec.status(t, taker.Target, 1, fleet.SyncFailed)
	if got := value(w.get(t, "held"), "key"); got != "1" {
		t.Errorf("held is %q, want it left to who holds it", got)
	}
}
