package enginetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// listFaultCases are lists that go wrong, of what an engine has applied and of what is not its own. The
// inventory can be read all the time: what goes wrong with that is in faultCases.
var listFaultCases = func() []testCase {
	var out []testCase
	for _, f := range listFaults {
		out = append(out, testCase{"notices drift, and deletes nothing wrongly, where the list of its objects " + f.reason, func(t *testing.T, w *world) { w.driftByList(t, f) }})
	}
	for _, f := range listFaults[:4] { // of which version it is does not matter to these
		out = append(out, testCase{"applies hundreds, and touches nothing foreign, where the list of what is there " + f.reason, func(t *testing.T, w *world) { w.strangersByList(t, f, 0) }})
	}
	return append(out, testCase{"applies hundreds, and touches nothing foreign, where there is more than a list shows", func(t *testing.T, w *world) {
		w.strangersByList(t, listFault{}, 520)
	}})
}()

type listFault struct {
	reason string
	times  int32
	what   func(now string) apiproxy.Fault // now is a version that the API server has come to
}

var listFaults = []listFault{
	{"fails", 4, func(string) apiproxy.Fault { return failing(500, "InternalError", "no") }},
	{"breaks off", 4, func(string) apiproxy.Fault { return apiproxy.Fault{Cut: 300} }},
	{"is forbidden for a while", 4, func(string) apiproxy.Fault { return failing(403, "Forbidden", "configmaps is forbidden: not yet") }},
	{"is empty", 3, func(string) apiproxy.Fault { return apiproxy.Fault{Status: 200, Body: emptyList} }},
	{"is empty and of now", 3, func(now string) apiproxy.Fault {
		return apiproxy.Fault{Status: 200, Body: strings.Replace(emptyList, `"resourceVersion":"1"`, fmt.Sprintf(`"resourceVersion":%q`, now), 1)}
	}},
}

// foul makes lists go wrong that choose selects, and has the API server know no watch that begins with what is
// there, so that it has to be listed. It returns how many lists have gone wrong so far.
func (w *world) foul(t *testing.T, proxy *apiproxy.Proxy, f listFault, choose func(r *http.Request) bool) *atomic.Int32 {
	t.Helper()
	list, err := w.client.Resource(configMaps).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int32
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		switch {
		case isWatch(r) && r.URL.Query().Get("sendInitialEvents") == "true":
			unknown := failing(http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
			return &unknown
		case choose(r) && done.Load() < f.times:
			done.Add(1)
			wrong := f.what(list.GetResourceVersion())
			return &wrong
		}
		return nil
	})
	return &done
}

// ofOurs reports whether a request lists what the engine has applied, of a kind or of one namespace of it.
func (w *world) ofOurs(r *http.Request) bool {
	return isList(r) && !isProbe(r) && strings.Contains(r.URL.Query().Get("labelSelector"), "kedge.dev/agent="+string(w.agent)) &&
		!strings.Contains(r.URL.Path, w.agentNS)
}

// ofStrangers reports whether a request lists what is not of a target, before new objects are applied.
func (w *world) ofStrangers(r *http.Request) bool {
	return isList(r) && strings.Contains(r.URL.Query().Get("labelSelector"), "!=") && !strings.Contains(r.URL.Path, w.agentNS)
}

// covers: A6 (failed list), D1, O7
func (w *world) driftByList(t *testing.T, f listFault) {
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "bystander")
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, configMap("stays", "1")+configMap("edited", "1")+configMap("lost", "1")+configMap("goes", "1"))
	e.stop()
	w.edit(t, "somebody", "edited", `{"data":{"key":"edited"}}`)
	w.delete(t, "lost")

	wrong := w.foul(t, proxy, f, w.ofOurs)
	mark := w.traffic.mark()
	e = w.start(t)
	e.Set(w.desired(t, 2, configMap("stays", "1")+configMap("edited", "1")+configMap("lost", "1")+configMap("new", "2")))
	want := map[string]string{"bystander": "", "stays": "1", "edited": "1", "lost": "1", "new": "2"}
	s := w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.compare(t, "where the list "+f.reason, s, want)
	if wrong.Load() == 0 {
		t.Error("no list went wrong: this case shows nothing")
	}
	w.edit(t, "somebody", "stays", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/stays")
	w.delete(t, "new")
	w.rec.event(t, fleet.ReasonDriftHealed, "/new")
	w.compare(t, "afterwards, where the list "+f.reason, s, want)
	if deleted := w.deletes(mark); !slices.Equal(deleted, []string{"DELETE goes"}) {
		t.Errorf("sent %v, want just what has left the bundle deleted", deleted)
	}
}

// strangersByList applies hundreds of objects, where two are there that are not the target's, and more others.
//
// covers: A7, A15
func (w *world) strangersByList(t *testing.T, f listFault, more int) {
	const n = 300
	w.policy.Force = true // is for fields of what is ours, not for objects that are not
	// The first ones, whose turn comes while the list is still believed.
	w.foreign(t, "m0", "key")
	w.foreign(t, "m1", "other") // no field of it is one of ours, so that nothing conflicts
	w.crowd(t, more)
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, configMap("stays", "1")+configMap("goes", "1"))
	before := w.foreigners(t)

	var asked atomic.Int32
	wrong := w.foul(t, proxy, f, func(r *http.Request) bool {
		if !w.ofStrangers(r) {
			return false
		}
		asked.Add(1)
		return true
	})
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, configMap("stays", "2")+many(n)))
	s := w.rec.statusWith(t, w.target, func(s engine.Status) string {
		synced := 0
		for _, o := range s.Objects {
			if o.Sync == fleet.SyncSynced && o.Name != "goes" {
				synced++
			}
		}
		if s.Observed.Generation != 2 || s.Observed.Sync != fleet.SyncFailed || synced != n-1 {
			return fmt.Sprintf("want all but the two foreign ones applied, not %d", synced)
		}
		return ""
	})
	if asked.Load() == 0 || wrong.Load() < min(f.times, 1) {
		t.Errorf("%d lists, of which %d went wrong: this case shows nothing", asked.Load(), wrong.Load())
	}
	for _, name := range []string{"m0", "m1"} {
		if o := object(t, s, "ConfigMap "+name); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonNotAdopted {
			t.Errorf("%s is %s %q, want it left alone and why", name, o.Sync, o.Message)
		}
	}
	after := w.foreigners(t)
	for name, was := range before {
		if after[name] != was {
			t.Errorf("%s is %q, want it as it was: %q", name, after[name], was)
		}
	}
	if deleted := w.deletes(mark); len(deleted) != 0 {
		t.Errorf("sent %v, want nothing deleted", deleted)
	}
}

// foreigners is what others have made of the ConfigMaps of the namespace that are not of the target.
func (w *world) foreigners(t testing.TB) map[string]string {
	t.Helper()
	list, err := w.client.Resource(configMaps).Namespace(w.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "kedge.dev/target!=" + string(w.target)})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		out[o.GetName()] = fmt.Sprint(o.GetUID(), o.GetLabels(), o.GetAnnotations(), o.Object["data"])
	}
	return out
}

// crowd puts n objects there that have nothing to do with the bundle.
func (w *world) crowd(t *testing.T, n int) {
	t.Helper()
	var wait sync.WaitGroup
	const hands = 8
	for hand := range hands {
		wait.Go(func() {
			for i := hand; i < n; i += hands {
				o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("crowd%d", i)}}}
				if _, err := w.client.Resource(configMaps).Namespace(w.ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
