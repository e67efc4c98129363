package enginetest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var kindFilterCases = []testCase{
	{"refuses a kind that its filter excludes, and applies the rest", filterExcludesKind},
	{"applies a kind of the built-in exclusions only if its filter includes it", filterIncludesKind},
	{"deletes nothing of a kind that its filter came to exclude, and manages it again later", filterExcludesLater},
	{"deletes nothing of an excluded kind with its deployment, until the filter allows it", filterKeepsAtTheEnd},
	{"neither corrects nor restores what its filter excludes", filterLeavesDrift},
	{"ends the hold of its filter with a confirmation, and when the object is back in the source", filterHoldEnds},
}

var (
	leases   = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

const leaseText = "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: turn}\nspec: {holderIdentity: somebody}\n"

func (w *world) has(t testing.TB, resource schema.GroupVersionResource, name string) bool {
	t.Helper()
	list, err := w.client.Resource(resource).Namespace(w.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items) == 1 && list.Items[0].GetDeletionTimestamp() == nil
}

// filter changes the kind filter of a running engine, as a new Welcome of the server does.
func (w *world) filter(t testing.TB, e *running, f fleet.KindFilter) {
	t.Helper()
	configured, ok := e.Engine.(interface {
		Configure(agent fleet.AgentID, scope fleet.Scope, namespaces []string, kinds fleet.KindFilter)
	})
	if !ok {
		t.Skip("this engine is configured when it is made")
	}
	w.kinds = f
	configured.Configure(w.agent, w.scope, w.allowed, f)
}

// covers: A1 (kind filters, refused again at the agent)
func filterExcludesKind(t *testing.T, w *world) {
	w.kinds = fleet.NewKindFilter(nil, []string{"Service", "*.apps"})
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+serviceText))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "Service web"); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonKindNotAllowed || !strings.HasSuffix(o.Message, "rule Service") {
		t.Errorf("web is %+v, want it refused with the rule", o)
	}
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced || !w.exists(t, "a") || w.has(t, services, "web") {
		t.Errorf("a is %s, want it applied, and nothing else", o.Sync)
	}
	w.filter(t, e, fleet.KindFilter{})
	w.rec.settled(t, w.target, 1)
	if !w.has(t, services, "web") {
		t.Error("web is not there, want it applied as soon as the filter allows it")
	}
}

// covers: A1 (inclusions come before the built-in exclusions)
func filterIncludesKind(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, configMap("a", "1")+leaseText))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "Lease turn"); o.Reason != fleet.ReasonKindNotAllowed || w.has(t, leases, "turn") {
		t.Errorf("the lease is %+v, want it refused by a built-in rule", o)
	}
	w.filter(t, e, fleet.NewKindFilter([]string{"Lease.coordination.k8s.io"}, []string{"*.coordination.k8s.io"}))
	w.rec.settled(t, w.target, 1)
	if !w.has(t, leases, "turn") {
		t.Error("the lease is not there, want an inclusion to come first")
	}
}

// covers: A1, A6 (a narrower filter deletes nothing)
func filterExcludesLater(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1")+serviceText)
	narrow := fleet.NewKindFilter(nil, []string{"Service"})
	w.filter(t, e, narrow)
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if o := object(t, s, "Service web"); o.Reason != fleet.ReasonKindNotAllowed || !w.has(t, services, "web") {
		t.Errorf("web is %+v, want it refused although it is in place", o)
	}
	keeps := func(s engine.Status) {
		t.Helper()
		if o := object(t, s, "Service web"); o.Reason != fleet.ReasonKindNotAllowed || !w.has(t, services, "web") {
			t.Errorf("status is %s, want web kept and why", describe(s))
		}
	}
	s = w.sync(t, e, 2, configMap("a", "2")) // the object leaves the source while its kind is excluded
	keeps(s)
	if w.exists(t, "goes") {
		t.Error("goes is there, want the rest pruned")
	}
	e.stop()
	e = w.start(t) // with the same filter
	keeps(w.sync(t, e, 3, configMap("a", "3")))
	w.filter(t, e, fleet.KindFilter{}) // which deletes nothing either
	s = w.rec.status(t, w.target, 3, fleet.SyncOutOfSync)
	if o := object(t, s, "Service web"); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonHeldByKindFilter || !w.has(t, services, "web") {
		t.Errorf("status is %s, want web held until its deletion is confirmed", describe(s))
	}
	w.sync(t, e, 4, configMap("a", "4")+serviceText)
	if got := w.rec.settled(t, w.target, 4); !w.has(t, services, "web") || object(t, got, "Service web").Sync != fleet.SyncSynced {
		t.Errorf("status is %s, want web managed again", describe(got))
	}
}

// covers: A6 (a hold by a filter ends, and what leaves later is pruned by the usual rules)
func filterHoldEnds(t *testing.T, w *world) {
	e := w.start(t)
	narrow := fleet.NewKindFilter(nil, []string{"Service"})
	hold := func(generation int64) {
		t.Helper()
		w.sync(t, e, generation, configMap("a", "1")+serviceText)
		w.filter(t, e, narrow)
		w.rec.status(t, w.target, generation, fleet.SyncFailed)
		w.sync(t, e, generation+1, configMap("a", "1"))
	}
	prunedAtOnce := func(generation int64) {
		t.Helper()
		s := w.sync(t, e, generation, configMap("a", "1"))
		if w.has(t, services, "web") || len(s.Objects) != 1 {
			t.Errorf("status is %s, want web pruned: nothing holds it any more", describe(s))
		}
	}
	hold(1)
	// Nothing can be confirmed while the filter excludes the kind.
	d := w.desired(t, 3, configMap("a", "1"))
	d.State.Confirmed = []string{"Service " + w.ns + "/web"}
	e.Set(d)
	if s := w.rec.settled(t, w.target, 3); object(t, s, "Service web").Reason != fleet.ReasonKindNotAllowed || !w.has(t, services, "web") {
		t.Errorf("status is %s, want web kept", describe(s))
	}
	e.Set(w.desired(t, 4, configMap("a", "1")))
	w.rec.settled(t, w.target, 4)
	w.filter(t, e, fleet.KindFilter{})
	s := w.rec.status(t, w.target, 4, fleet.SyncOutOfSync)
	if o := object(t, s, "Service web"); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonHeldByKindFilter {
		t.Errorf("status is %s, want web held", describe(s))
	}
	// A commit that has nothing to do with it does not delete it either.
	e.Set(w.desired(t, 5, configMap("a", "5")))
	if s := w.heldCount(t, 5, 1); !w.has(t, services, "web") {
		t.Errorf("status is %s, want web there", describe(s))
	}
	d = w.desired(t, 6, configMap("a", "5"))
	d.State.Confirmed = []string{"Service " + w.ns + "/web"}
	e.Set(d)
	w.heldCount(t, 6, 0)
	if w.has(t, services, "web") {
		t.Error("web is there, want it deleted as it was confirmed")
	}
	w.sync(t, e, 7, configMap("a", "1")+serviceText)
	prunedAtOnce(8)

	// It is back in the source while its kind is still excluded.
	hold(9)
	e.Set(w.desired(t, 11, configMap("a", "1")+serviceText))
	w.rec.status(t, w.target, 11, fleet.SyncFailed)
	e.stop()
	w.kinds = fleet.KindFilter{}
	e = w.start(t)
	w.sync(t, e, 12, configMap("a", "1")+serviceText)
	prunedAtOnce(13)
}

// covers: A6 (a tombstone deletes nothing of an excluded kind)
func filterKeepsAtTheEnd(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+serviceText)
	w.filter(t, e, fleet.NewKindFilter(nil, []string{"Service"}))
	w.rec.status(t, w.target, 1, fleet.SyncFailed)
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonKindNotAllowed || !strings.Contains(s.Observed.Message, "Service "+w.ns+"/web") || !w.has(t, services, "web") {
		t.Errorf("status is %s, want web kept and named", describe(s))
	}
	w.filter(t, e, fleet.KindFilter{})
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if w.has(t, services, "web") || w.exists(t, "a") {
		t.Error("want everything deleted once the filter allows it")
	}
}

// covers: A1 (not managed while it is excluded)
func filterLeavesDrift(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1")+serviceText)
	w.filter(t, e, fleet.NewKindFilter(nil, []string{"ConfigMap"}))
	w.rec.status(t, w.target, 1, fleet.SyncFailed)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`)
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", "configmap", "b")
	// What is still managed tells that the engine has seen the changes, which came before.
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", "service", "web")
	w.rec.event(t, fleet.ReasonDriftHealed, "/web")
	if got := value(w.get(t, "a"), "key"); got != "theirs" || w.exists(t, "b") {
		t.Errorf("a is %q, want both left as others made them", got)
	}
	w.filter(t, e, fleet.KindFilter{})
	w.rec.settled(t, w.target, 1)
	if got := value(w.get(t, "a"), "key"); got != "1" || !w.exists(t, "b") {
		t.Errorf("a is %q, want both corrected as soon as the filter allows them", got)
	}
}
