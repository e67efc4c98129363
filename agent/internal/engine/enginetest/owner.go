package enginetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var ownerCases = []testCase{
	{"refuses a kind that the owner of the cluster forbids, and applies the rest", ownerForbidsKind},
	{"deletes nothing that the owner of the cluster forbids to touch", ownerForbidsLater},
	{"deletes nothing at all where the owner of the cluster forbids deletions", ownerForbidsDeletions},
	{"refuses a deployment that names no ServiceAccount where the owner of the cluster requires one", ownerRequiresAccount},
	{"deletes nothing with rights that the owner of the cluster does not allow", ownerRequiresAccountToDelete},
	{"refuses what was on its way when the owner of the cluster came to forbid it", ownerForbidsMeanwhile},
}

const serviceText = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n"

// covers: A1, A12
func ownerForbidsKind(t *testing.T, w *world) {
	w.owner = ownerpolicy.Policy{Kinds: ownerpolicy.Kinds{Exclude: []string{"Service"}}}
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+serviceText))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "Service web"); o.Reason != fleet.ReasonOwnerPolicy {
		t.Errorf("web says %q, want who forbids it", o.Message)
	}
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced || !w.exists(t, "a") {
		t.Errorf("a is %s, want the rest applied", o.Sync)
	}
}

// covers: A6
func ownerForbidsLater(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+serviceText)
	e.stop()
	w.owner = ownerpolicy.Policy{Kinds: ownerpolicy.Kinds{Exclude: []string{"ConfigMap"}}}
	e = w.start(t)
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if !w.exists(t, "a") || s.Observed.Reason != fleet.ReasonOwnerPolicy {
		t.Errorf("status is %s, want a kept and why", describe(s))
	}
}

// covers: A6
func ownerForbidsDeletions(t *testing.T, w *world) {
	no := false
	w.owner = ownerpolicy.Policy{Deletions: &no}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	s := w.sync(t, e, 2, configMap("a", "1"))
	if o := object(t, s, "ConfigMap b"); !w.exists(t, "b") || o.Reason != fleet.ReasonOwnerPolicy {
		t.Errorf("b says %q, want it kept and why", o.Message)
	}
	e.Set(w.tombstone(3))
	w.rec.status(t, w.target, 3, fleet.SyncDeleted)
	if !w.exists(t, "a") || !w.exists(t, "b") {
		t.Error("a deployment was deleted with its objects, want them released")
	}
}

// covers: A18
func ownerRequiresAccount(t *testing.T, w *world) {
	w.owner = ownerpolicy.Policy{ServiceAccounts: ownerpolicy.ServiceAccounts{Require: true, Allow: []string{w.ns + "/deployer"}}}
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if object(t, s, "ConfigMap a").Reason != fleet.ReasonOwnerPolicy || w.exists(t, "a") {
		t.Errorf("status is %s, want it refused", describe(s))
	}
	w.policy.ServiceAccount = w.ns + "/admin"
	e.Set(w.desired(t, 2, configMap("a", "1")))
	w.rec.status(t, w.target, 2, fleet.SyncFailed)
	w.deployer(t, "deployer")
	w.policy.ServiceAccount = w.ns + "/deployer"
	w.sync(t, e, 3, configMap("a", "1"))
}

// covers: A18, A6
func ownerRequiresAccountToDelete(t *testing.T, w *world) {
	w.policy.AllowEmpty = true
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	w.owner = ownerpolicy.Policy{ServiceAccounts: ownerpolicy.ServiceAccounts{Require: true, Allow: []string{w.ns + "/deployer"}}}
	e = w.start(t)
	kept := func(s engine.Status) {
		t.Helper()
		if !w.exists(t, "a") || !w.exists(t, "b") || !hasReason(s, fleet.ReasonOwnerPolicy) {
			t.Errorf("status is %s, want both kept and why", describe(s))
		}
	}
	kept(w.sync(t, e, 2, "")) // nothing is desired any more
	e.Set(w.tombstone(3))
	kept(w.rec.status(t, w.target, 3, fleet.SyncFailed))
	w.policy.ServiceAccount = w.ns + "/admin"
	e.Set(w.tombstone(4))
	kept(w.rec.status(t, w.target, 4, fleet.SyncFailed))
	w.deployer(t, "deployer")
	w.policy.ServiceAccount = w.ns + "/deployer"
	e.Set(w.tombstone(5))
	w.rec.status(t, w.target, 5, fleet.SyncDeleted)
	if w.exists(t, "a") || w.exists(t, "b") {
		t.Error("want both deleted with the rights of an account that is allowed")
	}
}

// covers: A1
func ownerForbidsMeanwhile(t *testing.T, w *world) {
	e := w.start(t)
	owned, ok := e.Engine.(interface{ Restrict(p ownerpolicy.Policy) })
	if !ok {
		t.Skip("this engine is told of the owner's policy when it is made")
	}
	w.traffic.interfere(nil, func(_ int, r *http.Request) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/a") {
			owned.Restrict(ownerpolicy.Policy{Kinds: ownerpolicy.Kinds{Exclude: []string{"ConfigMap"}}})
		}
	})
	e.Set(w.desired(t, 1, configMap("a", "1")))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap a"); o.Reason != fleet.ReasonOwnerPolicy {
		t.Errorf("a says %q, want who forbids it", o.Message)
	}
	owned.Restrict(ownerpolicy.Policy{})
	w.traffic.interfere(nil, nil)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
}
