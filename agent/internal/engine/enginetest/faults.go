package enginetest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// faultCases are clusters that are hostile or broken for a while, by way of a proxy before the API
// server. In each of them a sync that creates, changes and prunes has to end as it would have without,
// nothing else may be touched, and drift is noticed again afterwards.
var faultCases = func() []testCase {
	var out []testCase
	for _, f := range faults {
		out = append(out, testCase{"ends as it should, and deletes nothing wrongly, where " + f.reason, func(t *testing.T, w *world) { w.weather(t, f) }})
	}
	return out
}()

type fault struct {
	reason string
	times  int // how many requests go wrong; more are let through
	when   func(r *http.Request) bool
	what   apiproxy.Fault
}

func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && !isWatch(r) && strings.HasSuffix(r.URL.Path, "/configmaps")
}
func isWrite(r *http.Request) bool  { return r.Method != http.MethodGet }
func isApply(r *http.Request) bool  { return r.Method == http.MethodPatch }
func isDelete(r *http.Request) bool { return r.Method == http.MethodDelete }
func isAny(*http.Request) bool      { return true }
func isUpdate(r *http.Request) bool { return r.Method == http.MethodPut }

// afterDeletion selects requests that come after one that deletes something.
func afterDeletion(when func(*http.Request) bool) func(*http.Request) bool {
	deleted := false
	return func(r *http.Request) bool {
		deleted = deleted || isDelete(r)
		return deleted && when(r)
	}
}

func isDiscovery(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/api/v1" || strings.Count(r.URL.Path, "/") <= 3 && strings.HasPrefix(r.URL.Path, "/apis"))
}

func failing(code int, reason, message string) apiproxy.Fault {
	return apiproxy.Fault{Status: code, Body: apiproxy.Status(code, reason, message)}
}

func tooMany() apiproxy.Fault {
	f := failing(http.StatusTooManyRequests, "TooManyRequests", "the server has received too many requests")
	f.Header = map[string]string{"Retry-After": "1"}
	return f
}

const emptyList = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`

var faults = []fault{
	{"everything is answered with 429", 6, isAny, tooMany()},
	{"writes are answered with 429", 6, isWrite, tooMany()},
	{"writes are answered with 500", 5, isWrite, failing(500, "InternalError", "etcdserver: leader changed")},
	{"applies are answered with 503", 5, isApply, failing(503, "ServiceUnavailable", "the server is currently unable to handle the request")},
	{"applies are slow", 3, isApply, apiproxy.Fault{Delay: 2500 * time.Millisecond}},
	{"the answers to applies are lost", 4, isApply, apiproxy.Fault{Lose: true}},
	{"the answers to deletions are lost", 3, isDelete, apiproxy.Fault{Lose: true}},
	{"deletions are answered with 500", 3, isDelete, failing(500, "InternalError", "no")},
	{"the answers to all writes are lost, the inventory too", 5, isWrite, apiproxy.Fault{Lose: true}},
	{"lists break off in the middle", 4, isList, apiproxy.Fault{Cut: 300}},
	{"lists are answered with 500", 4, isList, failing(500, "InternalError", "no")},
	{"lists are empty although there is something", 3, isList, apiproxy.Fault{Status: 200, Body: emptyList}},
	{"watches expire at once", 4, isWatch, failing(410, "Expired", "too old resource version")},
	{"watches break off", 5, isWatch, apiproxy.Fault{Cut: 1}},
	{"watches are refused", 4, isWatch, apiproxy.Fault{Refuse: true}},
	{"discovery is down", 4, isDiscovery, failing(503, "ServiceUnavailable", "no")},
	{"discovery knows no kind", 2, isDiscovery, failing(404, "NotFound", "the server could not find the requested resource")},
	{"a webhook refuses applies for a while", 4, isApply, failing(500, "InternalError", `failed calling webhook "policy.example.com": context deadline exceeded`)},
	{"the quota is exceeded for a while", 4, isApply, failing(403, "Forbidden", `configmaps "a" is forbidden: exceeded quota: objects`)},
	{"the inventory cannot be written once something was deleted", 2, afterDeletion(isUpdate), failing(500, "InternalError", "no")},
	{"every connection is cut", 8, isAny, apiproxy.Fault{Refuse: true}},
}

// covers: A6 (failed list, failed discovery), A10, O7
func (w *world) weather(t *testing.T, f fault) {
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "bystander")
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, configMap("stays", "1")+configMap("changes", "1")+configMap("goes", "1"))
	e.stop()

	left := f.times
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if left == 0 || !f.when(r) {
			return nil
		}
		left--
		return &f.what
	})
	e = w.startEventually(t)
	e.Set(w.desired(t, 2, configMap("stays", "1")+configMap("changes", "2")+configMap("new", "2")))
	s := w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.compare(t, "where "+f.reason, s, map[string]string{"bystander": "", "stays": "1", "changes": "2", "new": "2"})
	if proxy.Done() == 0 {
		t.Error("nothing went wrong: this case shows nothing")
	}
	proxy.Do(nil)
	w.edit(t, "somebody", "stays", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/stays")
	w.delete(t, "new")
	w.rec.event(t, fleet.ReasonDriftHealed, "/new")
	w.compare(t, "afterwards, where "+f.reason, s, map[string]string{"bystander": "", "stays": "1", "changes": "2", "new": "2"})
}

// startEventually is start for an engine whose first tries to read its inventory may fail, as a pod that
// is started again until it works.
func (w *world) startEventually(t *testing.T) *running {
	t.Helper()
	var last error
	for range 20 {
		e, err := w.tryStart(t)
		if err == nil {
			return e
		}
		last = err
	}
	t.Fatalf("does not start: %v", last)
	return nil
}
