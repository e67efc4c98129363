package enginetest

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var pruneGuardCases = []testCase{
	{"holds more deletions than the limit allows, and deletes those that are confirmed", tooManyAtOnce},
	{"goes on holding what was held, after a restart and a change that looks small", heldStaysHeld},
	{"deletes whatever an edit of the deployment removes", editIsConsent},
	{"deletes a protected kind when it is confirmed by name, and no other", confirmedProtected},
	{"forgets that an object was held when it is desired again", heldAndDesiredAgain},
	{"hands many objects over to another deployment without holding them", manyHandedOver},
	{"leaves the dependents of what it deletes when it is told to", orphans},
	{"says so when a deletion takes longer than is allowed, and goes on when it is done", slowDeletion},
	{"measures what a change removes by what there was before, and not by what it adds", notDiluted},
	{"measures it so when it is restarted, or told of something newer, in the middle", notDilutedMidway},
	{"deletes what was held when the deployment is deleted", heldThenTombstone},
	{"keeps a confirmed Namespace while another deployment has something in it", inhabitedNamespace},
	{"keeps a confirmed Namespace while something is held in it", heldInNamespace},
	{"keeps a confirmed Namespace while another agent has something in it", foreignInNamespace},
	{"keeps a confirmed Namespace while it cannot be told what is in it", unknownInNamespace},
	{"deletes nothing when it is killed between two confirmed deletions and told of another bundle", killedAmongConfirmed},
}

// many is n ConfigMaps, m0, m1, ….
func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(configMap(fmt.Sprintf("m%d", i), "1"))
	}
	return b.String()
}

func (w *world) left(t *testing.T, n int) (there []string) {
	t.Helper()
	for i := range n {
		if name := fmt.Sprintf("m%d", i); w.exists(t, name) {
			there = append(there, name)
		}
	}
	return there
}

// heldCount waits until just n objects are held at a generation, which is Synced when none is.
func (w *world) heldCount(t *testing.T, generation int64, n int) engine.Status {
	t.Helper()
	return w.rec.statusWith(t, w.target, func(s engine.Status) string {
		held := 0
		for _, o := range s.Objects {
			if o.Sync == fleet.SyncHeld {
				held++
			}
		}
		want := fleet.SyncSynced
		if n > 0 {
			want = fleet.SyncOutOfSync
		}
		if s.Observed.Generation != generation || s.Observed.Sync != want || held != n {
			return fmt.Sprintf("want generation %d %s with %d held, not %d", generation, want, n, held)
		}
		return ""
	})
}

// covers: A6
func tooManyAtOnce(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+many(12))
	e.Set(w.desired(t, 2, configMap("a", "2")))
	s := w.heldCount(t, 2, 12)
	if got := w.left(t, 12); len(got) != 12 || value(w.get(t, "a"), "key") != "2" {
		t.Fatalf("%v are left, want all, and the rest applied", got)
	}
	if o := object(t, s, "ConfigMap m3"); o.Reason != fleet.ReasonOverPruneLimit || !strings.Contains(o.Message, "12 of 13") {
		t.Errorf("m3 says %q, want how many of how many", o.Message)
	}
	d := w.desired(t, 3, configMap("a", "2"))
	for i := range 4 {
		d.State.Confirmed = append(d.State.Confirmed, fmt.Sprintf("ConfigMap %s/m%d", w.ns, i))
	}
	e.Set(d)
	w.heldCount(t, 3, 8)
	if got := w.left(t, 12); len(got) != 8 || w.exists(t, "m3") {
		t.Errorf("%v are left, want what was not confirmed", got)
	}
}

// covers: A6
func heldStaysHeld(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+many(12))
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Confirmed = []string{"ConfigMap " + w.ns + "/m0", "ConfigMap " + w.ns + "/m1", "ConfigMap " + w.ns + "/m2"}
	e.Set(d)
	w.heldCount(t, 2, 9)
	e.stop()
	// Nine are below the limit of ten, and this bundle knows nothing of a confirmation.
	e = w.start(t)
	e.Set(w.desired(t, 3, configMap("a", "3")))
	w.heldCount(t, 3, 9)
	d = w.desired(t, 4, configMap("a", "4"))
	d.State.Consent = true
	e.Set(d)
	w.heldCount(t, 4, 9)
	if got := w.left(t, 12); len(got) != 9 {
		t.Errorf("%v are left, want the nine that nobody has confirmed", got)
	}
}

// covers: A6
func editIsConsent(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+many(12))
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Consent = true
	e.Set(d)
	w.heldCount(t, 2, 0)
	if got := w.left(t, 12); len(got) != 0 {
		t.Errorf("%v are left, want none", got)
	}
}

func confirmedProtected(t *testing.T, w *world) {
	claim := func(name string) string {
		return "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\n" +
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+claim("one")+claim("two"))
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Consent, d.State.Confirmed = true, []string{"PersistentVolumeClaim " + w.ns + "/one"}
	e.Set(d)
	s := w.heldCount(t, 2, 1)
	if o := object(t, s, "PersistentVolumeClaim two"); o.Sync != fleet.SyncHeld {
		t.Errorf("two is %s, want it held", o.Sync)
	}
	claims, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}).
		Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != 1 || claims.Items[0].GetName() != "two" {
		t.Errorf("claims are %v (%v), want two only", claims, err)
	}
}

func heldAndDesiredAgain(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+many(12))
	e.Set(w.desired(t, 2, configMap("a", "1")))
	w.heldCount(t, 2, 12)
	w.sync(t, e, 3, configMap("a", "1")+many(12))
	w.sync(t, e, 4, configMap("a", "1")+many(11))
	if got := w.left(t, 12); len(got) != 11 {
		t.Errorf("%v are left, want the twelfth pruned", got)
	}
}

// covers: A14
func manyHandedOver(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+many(12))
	uid := w.get(t, "m5").GetUID()
	other := fleet.NewTargetID()
	e.Pending(1)
	e.Set(w.desired(t, 2, configMap("a", "1")))
	e.Set(w.other(t, other, 1, many(12)))
	e.Pending(0)
	w.rec.status(t, other, 1, fleet.SyncSynced)
	s := w.heldCount(t, 2, 0)
	if len(s.Objects) != 1 {
		t.Errorf("status is %s, want the others released", describe(s))
	}
	w.ownedBy(t, "m5", uid, other)
}

// covers: A5
func orphans(t *testing.T, w *world) {
	w.policy.Propagation = fleet.PropagationOrphan
	e := w.start(t)
	w.sync(t, e, 1, configMap("keep", "1")+configMap("parent", "1"))
	parent := w.get(t, "parent")
	w.h.Cluster.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: child\n  namespace: %s\n  ownerReferences:\n"+
		"  - {apiVersion: v1, kind: ConfigMap, name: parent, uid: %s}\n", w.ns, parent.GetUID()))
	w.sync(t, e, 2, configMap("keep", "1"))
	child := w.get(t, "child")
	if child.GetDeletionTimestamp() != nil || len(child.GetOwnerReferences()) != 0 {
		t.Errorf("child is %v, want it there and nobody's", child.Object)
	}
}

// covers: A5
func slowDeletion(t *testing.T, w *world) {
	w.policy.PruneTimeout = 100 * time.Millisecond
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":["example.com/hangs"]}}`)
	e.Set(w.desired(t, 2, configMap("a", "1")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if object(t, s, "ConfigMap b").Reason != fleet.ReasonPruneTimeout || !strings.Contains(s.Observed.Message, "100ms") || !strings.Contains(s.Observed.Message, "example.com/hangs") {
		t.Errorf("message is %q, want what takes too long and why", s.Observed.Message)
	}
	w.edit(t, "somebody", "b", `{"metadata":{"finalizers":null}}`)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
}

// covers: A6, D6
func killedAmongConfirmed(t *testing.T, w *world) {
	e := w.start(t)
	// What is left after one deletion is below the limit.
	w.sync(t, e, 1, configMap("a", "1")+many(11))
	// One deletion is carried out, and no write after it.
	var first atomic.Bool
	killed := make(chan struct{})
	w.traffic.interfere(func(_ int, r *http.Request) error {
		switch {
		case r.Method == http.MethodDelete && first.Swap(true), r.Method != http.MethodDelete && r.Method != http.MethodGet && first.Load():
			return errInterfered
		}
		return nil
	}, func(_ int, r *http.Request) {
		if r.Method == http.MethodDelete && !strings.HasSuffix(r.URL.Path, "/configmaps") {
			select {
			case <-killed:
			default:
				close(killed)
			}
		}
	})
	d := w.desired(t, 2, configMap("a", "1"))
	for i := range 3 {
		d.State.Confirmed = append(d.State.Confirmed, fmt.Sprintf("ConfigMap %s/m%d", w.ns, i))
	}
	e.Set(d)
	<-killed
	e.stop()
	w.traffic.interfere(nil, nil)
	e = w.start(t)
	e.Set(w.desired(t, 3, configMap("a", "3")))
	s := w.rec.settled(t, w.target, 3)
	if got := w.left(t, 11); len(got) < 10 {
		t.Errorf("%v are left of 11, want all but the one that was deleted before: %s", got, describe(s))
	}
}
