package enginetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var detachCases = []testCase{
	{"releases the objects of a detached target: they stay unchanged, without labels, and are listed", detach},
	{"does not correct drift of released objects", detachedDrift},
	{"acknowledges a detach of something it does not hold", detachOfNothing},
	{"manages released objects again, without adopt", reattach},
	{"reports an object that cannot be released, and tries again", detachRefused},
	{"releases objects after a restart, even if some are missing", detachAfterRestart},
	{"hands objects of a detached target over to one that desires them", detachHandsOver},
	{"releases nothing outside its namespaces, and reports it", detachInScope},
	{"releases a target that another replica continues", detachTwoReplicas},
}

func (w *world) detached(generation int64) engine.Desired {
	d := w.tombstone(generation)
	d.State.Tombstone, d.State.Detached = false, true
	return d
}

// unmarked is an object without the fields that a release changes.
func unmarked(obj *unstructured.Unstructured) map[string]any {
	out := obj.DeepCopy()
	labels := out.GetLabels()
	delete(labels, "kedge.dev/agent")
	delete(labels, "kedge.dev/target")
	if out.SetLabels(labels); len(labels) == 0 {
		unstructured.RemoveNestedField(out.Object, "metadata", "labels")
	}
	out.SetManagedFields(nil)
	out.SetResourceVersion("")
	return out.Object
}

// assertReleased checks that an object exists, is unchanged, and has no owner.
func (w *world) assertReleased(t *testing.T, when string, before *unstructured.Unstructured) {
	t.Helper()
	now := w.get(t, before.GetName())
	if diff := cmp.Diff(unmarked(before), unmarked(now)); diff != "" {
		t.Errorf("%s: %s has changed (-before +now):\n%s", when, before.GetName(), diff)
	}
	if labels := now.GetLabels(); labels["kedge.dev/target"] != "" || labels["kedge.dev/agent"] != "" {
		t.Errorf("%s: the labels of %s are %v, want none of ours", when, before.GetName(), labels)
	}
}

func detach(t *testing.T, w *world) {
	e := w.start(t)
	labelled := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, labels: {app: mine}, annotations: {note: mine}}\ndata: {key: \"1\"}\n"
	w.sync(t, e, 1, webApp+configMap("a", "1")+labelled)
	w.edit(t, "somebody", "a", `{"data":{"more":"theirs"}}`)
	a, b := w.get(t, "a"), w.get(t, "b")
	web, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDetached)
	for _, name := range []string{"ConfigMap a", "ConfigMap b", "Deployment web"} {
		if o := object(t, s, name); o.Sync != fleet.SyncDetached || o.Health == "" || o.Health == fleet.HealthUnknown {
			t.Errorf("%s is listed as %+v, want it released, with its health", name, o)
		}
	}
	w.assertReleased(t, "detached", a)
	w.assertReleased(t, "detached", b)
	if now, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil || now.GetUID() != web.GetUID() {
		t.Errorf("the Deployment is %v (%v), want the same", now, err)
	}
	if left := w.inventoryNames(t); len(left) != 0 {
		t.Errorf("%d parts of the inventory are left", len(left))
	}
	w.rec.event(t, fleet.ReasonDetached, "")
}

func detachedDrift(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.Set(w.detached(2))
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	mark := w.traffic.mark()
	w.edit(t, "somebody", "a", `{"data":{"key":"theirs"}}`)
	w.delete(t, "b")
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("c", "1"))) // takes longer than healing would
	w.rec.status(t, other, 1, fleet.SyncSynced)
	if w.exists(t, "b") || value(w.get(t, "a"), "key") != "theirs" {
		t.Error("drift of a released object was corrected")
	}
	_, requests := w.traffic.since(mark, w.agentNS)
	for _, r := range requests {
		if r.write() && !strings.HasSuffix(r.path, "/c") {
			t.Errorf("sent %v, want no request about released objects", r)
		}
	}
}

func detachOfNothing(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDetached)
	if len(s.Objects) != 0 || s.Observed.Reason != fleet.ReasonDetached {
		t.Errorf("status is %s, want that nothing was known", describe(s))
	}
	if _, others := w.traffic.since(0, w.agentNS); len(others) != 0 {
		t.Errorf("requests are %v, want none", others)
	}
}

func reattach(t *testing.T, w *world) {
	e := w.start(t)
	text := configMap("a", "1") + configMap("b", "1") + configMap("c", "1")
	w.sync(t, e, 1, text)
	a, b, c := w.get(t, "a"), w.get(t, "b"), w.get(t, "c")
	e.Set(w.detached(2))
	w.rec.status(t, w.target, 2, fleet.SyncDetached)

	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("b", "1")))
	if s := w.rec.status(t, other, 1, fleet.SyncFailed); object(t, s, "ConfigMap b").Reason != fleet.ReasonNotAdopted {
		t.Errorf("status is %s, want it refused to another deployment that does not adopt", describe(s))
	}
	w.sync(t, e, 3, configMap("a", "3"))
	if now := w.get(t, "a"); now.GetUID() != a.GetUID() || value(now, "key") != "3" || w.targetOf(t, now) != w.target {
		t.Errorf("a is %v, want the same object, ours again", now.Object)
	}
	w.assertReleased(t, "attached again without it", c)
	if w.h.ArgoCD == "" { // there, its Application has b again, and gives it to the other deployment
		w.assertReleased(t, "attached again without it", b)
	}

	w.policy.Adopt = true
	e.Set(w.other(t, other, 2, configMap("b", "2")))
	w.rec.status(t, other, 2, fleet.SyncSynced)
	w.ownedBy(t, "b", b.GetUID(), other)
}

func detachRefused(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	a, b := w.get(t, "a"), w.get(t, "b")
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/b") {
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap b"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonClusterUnavailable || s.Observed.Reason != fleet.ReasonObjectsFailed || !strings.Contains(s.Observed.Message, "/b") {
		t.Errorf("status is %s, want which object and why", describe(s))
	}
	w.traffic.interfere(nil, nil)
	if s = w.rec.status(t, w.target, 2, fleet.SyncDetached); len(s.Objects) != 2 {
		t.Errorf("status is %s, want both objects listed", describe(s))
	}
	w.assertReleased(t, "tried again", a)
	w.assertReleased(t, "tried again", b)
}

func detachAfterRestart(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("gone", "1")+configMap("replaced", "1")+configMap("stripped", "1"))
	a := w.get(t, "a")
	e.stop()
	w.delete(t, "gone")
	w.delete(t, "replaced")
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "replaced")
	w.edit(t, "somebody", "stripped", `{"metadata":{"labels":null}}`)
	replaced, stripped := w.get(t, "replaced"), w.get(t, "stripped")
	e = w.start(t)
	e.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDetached)
	if len(s.Objects) != 2 || object(t, s, "ConfigMap a").Name == object(t, s, "ConfigMap stripped").Name {
		t.Errorf("status is %s, want what is still there", describe(s))
	}
	w.assertReleased(t, "after a restart", a)
	w.assertReleased(t, "after a restart", replaced)
	w.assertReleased(t, "after a restart", stripped)
	if w.exists(t, "gone") {
		t.Error("what was deleted by hand is back")
	}
}

func detachHandsOver(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("x", "1")+configMap("z", "1"))
	x, z := w.get(t, "x"), w.get(t, "z")
	e.Pending(1)
	e.Set(w.detached(2))
	w.keptFor(t, 2, fleet.ReasonWaitingForDeployments, "")
	other := fleet.NewTargetID()
	e.Set(w.other(t, other, 1, configMap("x", "2")))
	e.Pending(0)
	w.rec.status(t, other, 1, fleet.SyncSynced)
	if s := w.rec.status(t, w.target, 2, fleet.SyncDetached); len(s.Objects) != 1 {
		t.Errorf("status is %s, want just what nobody has taken over", describe(s))
	}
	w.ownedBy(t, "x", x.GetUID(), other)
	w.assertReleased(t, "handed over the other", z)
}

func detachInScope(t *testing.T, w *world) {
	home := w.ns
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	a := w.get(t, "a")
	e.stop()
	w.scope, w.allowed = fleet.ScopeNamespaced, []string{"elsewhere"}
	e = w.start(t)
	mark := w.traffic.mark()
	e.Set(w.detached(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonOutsideScope || !strings.Contains(s.Observed.Message, home+"/a") {
		t.Errorf("message is %q, want what is kept and why", s.Observed.Message)
	}
	if _, requests := w.traffic.since(mark, w.agentNS); len(requests) != 0 {
		t.Errorf("sent %v, want no request outside the namespaces", requests)
	}
	e.stop()
	w.allowed = []string{home}
	e = w.start(t)
	e.Set(w.detached(2))
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	w.assertReleased(t, "allowed again", a)
}

func detachTwoReplicas(t *testing.T, w *world) {
	behind := w.start(t)
	w.sync(t, behind, 1, configMap("a", "1")+configMap("b", "1"))
	a, b := w.get(t, "a"), w.get(t, "b")
	late := w.rec
	w.rec = newRecorder()
	ahead := w.start(t)
	ahead.Set(w.detached(2))
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	behind.Set(w.detached(2)) // it may have healed the labels meanwhile
	late.status(t, w.target, 2, fleet.SyncDetached)
	w.assertReleased(t, "both have heard of it", a)
	w.assertReleased(t, "both have heard of it", b)
	if left := w.inventoryNames(t); len(left) != 0 {
		t.Errorf("%d parts of the inventory are left", len(left))
	}
}
