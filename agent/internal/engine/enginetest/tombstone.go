package enginetest

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

var tombstoneCases = []testCase{
	{"deletes everything of a deleted deployment, and then its inventory", tombstone},
	{"carries out a tombstone that arrives after a restart", tombstoneAfterRestart},
	{"writes down that a deployment is deleted before it deletes the first object", tombstoneNoted},
	{"acknowledges a tombstone of something it does not hold", tombstoneOfNothing},
	{"releases protected kinds of a deleted deployment, and takes them up again", tombstoneReleases},
}

func tombstone(t *testing.T, w *world) {
	w.policy.Prune = false // deleting the deployment is consent all the same
	e := w.start(t)
	w.sync(t, e, 1, webApp+configMap("a", "1"))
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if len(s.Objects) != 0 || w.exists(t, "a") {
		t.Errorf("status is %s, want nothing left", describe(s))
	}
	if _, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
		t.Error("the Deployment is there")
	}
	if left := w.inventoryNames(t); len(left) != 0 {
		t.Errorf("%d parts of the inventory are left", len(left))
	}
}

func tombstoneAfterRestart(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	e.stop()
	e = w.start(t)
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.exists(t, "a") {
		t.Error("a is there")
	}
}

// covers: D6
func tombstoneNoted(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	deleted := make(chan struct{})
	var once sync.Once
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodDelete {
			once.Do(func() { close(deleted) })
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.tombstone(2))
	<-deleted
	e.stop()
	w.traffic.interfere(nil, nil)
	e = w.start(t)
	if len(e.held) != 1 || e.held[0].Generation != 2 || e.held[0].Digest != "" {
		t.Errorf("held is %+v, want the tombstone's version: a replica that is behind would apply everything again", e.held)
	}
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.exists(t, "a") || w.exists(t, "b") {
		t.Error("want nothing left")
	}
}

func tombstoneOfNothing(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if s.Observed.Reason != fleet.ReasonNoInventory {
		t.Errorf("the reason is %s, want %s", s.Observed.Reason, fleet.ReasonNoInventory)
	}
	w.rec.event(t, fleet.ReasonNoInventory, "")
	if _, others := w.traffic.since(0, w.agentNS); len(others) != 0 {
		t.Errorf("requests are %v, want none", others)
	}
}

func tombstoneReleases(t *testing.T, w *world) {
	name := w.ns + "-more"
	w.dropLater(t, namespaces, name)
	e := w.start(t)
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-more}\n" + configMap("a", "1") +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: keep, annotations: {kedge.dev/prune: disabled}}\n"
	w.sync(t, e, 1, text)
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if s.Observed.Reason != fleet.ReasonReleased || !strings.Contains(s.Observed.Message, "Namespace "+name) || !strings.Contains(s.Observed.Message, "/keep") {
		t.Errorf("message is %q, want what was kept", s.Observed.Message)
	}
	ns, err := w.client.Resource(namespaces).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || ns.GetDeletionTimestamp() != nil {
		t.Fatalf("the namespace is %v (%v), want it alive", ns, err)
	}
	if labels := ns.GetLabels(); labels["kedge.dev/target"] != "" || labels["kedge.dev/agent"] != "" {
		t.Errorf("labels are %v, want none of ours", labels)
	}
	if w.exists(t, "a") || !w.exists(t, "keep") {
		t.Error("want a gone and keep there")
	}
	w.target = fleet.NewTargetID() // the deployment is created again under its name
	w.policy.Adopt = w.h.ArgoCD != ""
	w.sync(t, e, 1, text)

	other := w.desired(t, 1, text)
	w.target = fleet.NewTargetID()
	other.Target, other.Deployment = w.target, "another"
	e.Set(other)
	if s := w.rec.status(t, w.target, 1, fleet.SyncFailed); object(t, s, "ConfigMap keep").Reason != fleet.ReasonOwnedByOther {
		t.Errorf("status is %s, want it refused to a deployment of another name", describe(s))
	}
}
