package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// outageCases are API servers that are away for long, while an engine runs.
var outageCases = []testCase{
	{"goes on by its watches after an outage, reads nothing again and deletes nothing", func(t *testing.T, w *world) { w.outage(t, rideOut) }},
	{"lists again after an outage only where its watch has expired, and deletes nothing", func(t *testing.T, w *world) { w.outage(t, rideExpired) }},
	{"lists again after an outage when the API server has gone back in time, and deletes nothing", func(t *testing.T, w *world) { w.outage(t, rideRestored) }},
	{"takes a list when the stream of what is there at first breaks off, and does not ask for it again and again", brokenFirst},
}

// ride is what the API server makes of its past when it comes back.
type ride int

const (
	rideOut      ride = iota
	rideExpired       // it does not know what was that long ago
	rideRestored      // it is behind what was seen of it
)

// readsAll reports whether a request reads a whole kind: by a list, or by a watch that begins with one. What is
// read of the inventory is another matter.
func (w *world) readsAll(r *http.Request) bool {
	list := isList(r) && !isProbe(r) && !strings.Contains(r.URL.Path, w.agentNS)
	return list || isWatch(r) && r.URL.Query().Get("sendInitialEvents") == "true"
}

// isProbe reports whether a request asks for no more than how far the API server is.
func isProbe(r *http.Request) bool { return isList(r) && r.URL.Query().Get("limit") == "1" }

// covers: A10, O7
func (w *world) outage(t *testing.T, how ride) {
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, configMap("stays", "1")+configMap("edited", "1")+configMap("deleted", "1")+configMap("goes", "1"))
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "bystander")

	var refused, full, gone atomic.Int32
	proxy.Do(func(*http.Request) *apiproxy.Fault {
		if refused.Add(1)%2 == 0 {
			return &apiproxy.Fault{Refuse: true}
		}
		f := failing(http.StatusServiceUnavailable, "ServiceUnavailable", "no server is behind this load balancer")
		return &f
	})
	proxy.Sever()
	await := func(n int32) {
		t.Helper()
		testkit.Eventually(t, limit, func(context.Context) error {
			if refused.Load() < n {
				return errors.New("the engine has not noticed that the API server is away")
			}
			return nil
		})
	}
	await(4)
	w.edit(t, "somebody", "edited", `{"data":{"key":"edited"}}`)
	w.delete(t, "deleted")
	e.Set(w.desired(t, 2, configMap("stays", "1")+configMap("edited", "1")+configMap("deleted", "1")+configMap("new", "2")))
	await(refused.Load() + 4)
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if w.readsAll(r) && full.Add(1) > 0 {
			return nil
		}
		if how == rideRestored && isProbe(r) && gone.Add(1) == 1 {
			return &apiproxy.Fault{Status: http.StatusOK, Body: emptyList}
		}
		if how == rideExpired && isWatch(r) && gone.Add(1) == 1 {
			f := failing(http.StatusGone, "Expired", "too old resource version")
			return &f
		}
		return nil
	})
	s := w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.rec.event(t, fleet.ReasonDriftHealed, "/edited")
	w.rec.event(t, fleet.ReasonDriftHealed, "/deleted")
	w.compare(t, "after an outage", s, map[string]string{"bystander": "", "stays": "1", "edited": "1", "deleted": "1", "new": "2"})
	w.edit(t, "somebody", "stays", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/stays")
	if n := full.Load(); how == rideOut && n > 0 || how != rideOut && n == 0 {
		t.Errorf("after the outage the engine has read its objects again %d times; how the API server came back: %d", n, how)
	}
}

// covers: O7
func brokenFirst(t *testing.T, w *world) {
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	var asked atomic.Int32
	broken := fmt.Sprintf(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"first","namespace":%q,"resourceVersion":"1"}}}`, w.ns) + "\nthis is no event\n"
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if isWatch(r) && r.URL.Query().Get("sendInitialEvents") == "true" {
			asked.Add(1)
			return &apiproxy.Fault{Status: http.StatusOK, Body: broken}
		}
		return nil
	})
	e := w.start(t)
	w.sync(t, e, 1, configMap("edited", "1"))
	w.edit(t, "somebody", "edited", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/edited")
	if n := asked.Load(); n == 0 || n > 10 {
		t.Errorf("a stream that breaks off was asked for %d times, want it tried, and not again and again", n)
	}
}
