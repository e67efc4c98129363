package builtin

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// told passes statuses on; events are of no interest.
type told chan engine.Status

func (c told) Status(s engine.Status)            { c <- s }
func (c told) Event(fleet.TargetID, fleet.Event) {}

func (c told) await(t *testing.T, what string, is func(engine.Status) bool) {
	t.Helper()
	var last engine.Status
	for {
		select {
		case last = <-c:
			if is(last) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("never %s; last is %+v", what, last)
		}
	}
}

// launch runs an engine of short delays until the end of the test.
func launch(t *testing.T, namespace string, cfg *rest.Config, out told) *Engine {
	t.Helper()
	timing := defaultTiming()
	timing.watches.StaleAfter, timing.reread, timing.watches.Max = 300*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	e, err := newEngine(Config{Namespace: namespace, REST: cfg, Reporter: out, AgentID: fleet.NewAgentID(), Scope: fleet.ScopeCluster, Strict: true}, timing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

// partition is a way to the API server that can be cut: for everything, or for watches and lists only.
type partition struct {
	next           http.RoundTripper
	cut, unwatched *atomic.Bool
	open           chan context.CancelFunc
}

func (p partition) RoundTrip(r *http.Request) (*http.Response, error) {
	stream := r.Method == http.MethodGet && r.URL.Query().Has("labelSelector") && strings.Contains(r.URL.RawQuery, "target")
	if p.cut.Load() || stream && p.unwatched.Load() {
		return nil, errors.New("no route to host")
	}
	if r.URL.Query().Has("watch") {
		ctx, cancel := context.WithCancel(r.Context())
		p.open <- cancel
		r = r.WithContext(ctx)
	}
	return p.next.RoundTrip(r)
}

// sever ends the watches that are open.
func (p partition) sever() {
	for {
		select {
		case cancel := <-p.open:
			cancel()
		default:
			return
		}
	}
}

func TestStaleWatches(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	p := partition{cut: &atomic.Bool{}, unwatched: &atomic.Bool{}, open: make(chan context.CancelFunc, 1000)}
	cfg := c.RESTConfig()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { p.next = next; return p })
	out := make(told, 1000)
	e := launch(t, c.Namespace(t), cfg, out)
	d := wanting(t, "tgt-unwatched", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: ours}}")
	d.State = fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: d.Objects.Digest(), Namespace: ns}
	e.Set(d)
	synced := func(s engine.Status) bool {
		return s.Observed.Sync == fleet.SyncSynced && s.Observed.Health == fleet.HealthCurrent && s.Observed.Message == ""
	}
	unknown := func(s engine.Status) bool {
		return s.Observed.Health == fleet.HealthUnknown && strings.Contains(s.Observed.Message, "not known") &&
			s.Observed.Sync == fleet.SyncSynced && strings.Contains(s.Objects[0].Message, "watch")
	}
	out.await(t, "synced", synced)
	for _, how := range []*atomic.Bool{p.cut, p.unwatched} {
		how.Store(true)
		p.sever()
		out.await(t, "unknown", unknown)
		if how == p.unwatched {
			// Reads go through: what is changed is restored all the same.
			maps := c.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
			edited, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"key":"edited"}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			events, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: edited.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			<-events.ResultChan()
			events.Stop()
		}
		how.Store(false)
		out.await(t, "synced again", synced)
	}
}

func TestDeletedTargetsAreForgotten(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	out := make(told, 1000)
	e := launch(t, c.Namespace(t), c.RESTConfig(), out)
	d := wanting(t, "tgt-deleted", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	set := func(generation int64, tombstone bool) {
		next := d
		next.State = fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: d.Objects.Digest(), Namespace: c.Namespace(t), Tombstone: tombstone}
		if tombstone {
			next.Objects, next.State.Digest = nil, ""
		}
		e.Set(next)
	}
	is := func(generation int64, sync fleet.SyncState) func(engine.Status) bool {
		return func(s engine.Status) bool { return s.Observed.Generation == generation && s.Observed.Sync == sync }
	}
	set(1, false)
	out.await(t, "synced", is(1, fleet.SyncSynced))
	e.mu.Lock()
	deleted := e.targets["tgt-deleted"]
	e.mu.Unlock()
	set(2, true)
	out.await(t, "deleted", is(2, fleet.SyncDeleted))
	for e.knows(deleted) {
		runtime.Gosched() // it goes right after the status
	}
	if e.claims.abandoned(claimedKeys(d)[0], d.Target) {
		t.Error("the claims of a target that is gone are kept")
	}
	quiet := len(out)
	set(2, true) // said again, as after a reconnect
	if len(out) != quiet {
		t.Errorf("the same tombstone again makes %+v", <-out)
	}
	// A restored server has forgotten the tombstone: it is told, or it would take the target for Synced.
	for _, generation := range []int64{1, 2} {
		set(generation, false)
		select {
		case s := <-out:
			if !is(2, fleet.SyncDeleted)(s) || s.Target != d.Target {
				t.Errorf("generation %d of a target that is gone makes %+v", generation, s)
			}
		default:
			t.Errorf("generation %d of a target that is gone was passed over in silence", generation)
		}
	}
	e.mu.Lock()
	if len(e.targets) != 0 {
		t.Errorf("%d targets, want nothing done about what is old", len(e.targets))
	}
	e.mu.Unlock()
	set(3, false)
	out.await(t, "synced again", is(3, fleet.SyncSynced))
}

func (e *Engine) knows(t *target) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.targets[t.id] == t
}
