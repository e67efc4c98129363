package link_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

func desiredFrame(d wire.Desired) *agentv1.ConnectResponse {
	return &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: d.Proto()}}
}

func snapshotComplete() *agentv1.ConnectResponse {
	return &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_SnapshotComplete{SnapshotComplete: &agentv1.SnapshotComplete{}}}
}

// While the bundle of the next version is unavailable, the status of a target shows that failure, with the current version
// and objects. Reports of the engine do not hide it.
func TestUnavailableBundleIsShownWithCurrentState(t *testing.T) {
	t.Parallel()
	first, content := desire(configMaps(t, 2, 10))
	first.Bundle = content
	second, nextContent := desire(configMaps(t, 3, 10))
	second.State.Generation, second.State.Commit = 2, "abc"
	var back atomic.Bool
	s := &scriptedServer{desired: first, fetch: func(_ int, _ int64, send func([]byte, int64) error) error {
		if !back.Load() {
			return status.Error(codes.NotFound, "no bundle")
		}
		return send(nextContent, int64(len(nextContent)))
	}}
	r := start(t, s.serve(t), "kedge-agent-x", nil)
	ctx := testContext(t)
	s.status(ctx, t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncSynced) })
	s.more <- desiredFrame(second)
	failed := s.status(ctx, t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncFailed) })
	if failed.GetDigest() != first.State.Digest || failed.GetGeneration() != 1 || failed.GetHealth() != string(fleet.HealthCurrent) ||
		len(failed.GetGone()) != 0 || failed.GetFull() {
		t.Errorf("status = %v, want digest, version, health and objects of the current state", failed)
	}
	if m := failed.GetMessage(); failed.GetReason() != string(fleet.ReasonBundleUnavailable) || !strings.Contains(m, "abc") {
		t.Errorf("%s: %q, want %s and the commit", failed.GetReason(), m, fleet.ReasonBundleUnavailable)
	}
	r.Status(engine.Status{Target: first.Target, Observed: fleet.Observed{
		Version: first.State.Version, Digest: first.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthFailed, Message: "a pod crashes",
	}})
	next := s.status(ctx, t, func(st *agentv1.Status) bool { return st.GetHealth() == string(fleet.HealthFailed) })
	if next.GetSync() != string(fleet.SyncFailed) || next.GetMessage() != failed.GetMessage() {
		t.Errorf("next status = %v, want the same failure", next)
	}
	back.Store(true)
	s.status(ctx, t, func(st *agentv1.Status) bool {
		return st.GetSync() == string(fleet.SyncSynced) && st.GetGeneration() == 2 && st.GetMessage() == ""
	})
}

// A bundle that is too large is fetched only once, and every target that waits for it fails.
func TestTooLargeBundleIsNotFetchedAgain(t *testing.T) {
	t.Parallel()
	d, content := desire(configMaps(t, 1, 10))
	s := &scriptedServer{desired: d, fetch: func(_ int, _ int64, send func([]byte, int64) error) error { return send(content, int64(len(content))) }}
	r := start(t, s.serve(t), "kedge-agent-x", func(c *link.Config) {
		c.Unpack = func(digest string, zstd []byte) (*manifest.Set, error) { return manifest.Unpack(digest, zstd, 10) }
	})
	ctx := testContext(t)
	tooLarge := func(st *agentv1.Status) bool { return strings.Contains(st.GetMessage(), "too large for this agent") }
	s.status(ctx, t, tooLarge)
	other := d
	other.Target = "tgt-2"
	s.more <- desiredFrame(other)
	if st := s.status(ctx, t, tooLarge); st.GetTarget() != "tgt-2" || st.GetSync() != string(fleet.SyncFailed) {
		t.Errorf("status = %v, want the other target to fail too", st)
	}
	r.engine.awaitCall(ctx, t, "pending 3")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.offsets) != 1 {
		t.Errorf("fetched %d times, want once", len(s.offsets))
	}
}

// The engine knows how many targets, and whether the rest of the snapshot, are pending.
func TestPendingIsReportedToTheEngine(t *testing.T) {
	t.Parallel()
	d, content := desire(configMaps(t, 1, 10))
	release := make(chan struct{})
	s := &scriptedServer{desired: d, fetch: func(_ int, _ int64, send func([]byte, int64) error) error {
		<-release
		return send(content, int64(len(content)))
	}}
	r := start(t, s.serve(t), "kedge-agent-x", nil)
	ctx := testContext(t)
	r.engine.awaitCall(ctx, t, "pending 2") // the target, and the rest of the snapshot
	other := d
	other.Target, other.Bundle = "tgt-2", content
	s.more <- desiredFrame(other)
	r.engine.awaitCall(ctx, t, "set tgt-2")
	s.more <- snapshotComplete()
	r.engine.awaitCall(ctx, t, "pending 1")
	close(release)
	calls := r.engine.awaitCall(ctx, t, "pending 0")
	want := []string{"pending 1", "pending 2", "set tgt-2", "pending 1", "set tgt-1", "pending 0"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls = %q, want %q", calls, want)
	}
}

// A connection that is lost before the snapshot is complete does not allow prunes.
func TestLostConnectionKeepsPending(t *testing.T) {
	t.Parallel()
	d, content := desire(configMaps(t, 1, 10))
	d.Bundle = content
	s := &scriptedServer{desired: d}
	address := s.serve(t)
	proxy := newTCPProxy(t, strings.TrimPrefix(address, "grpc://"))
	problems := newProblemLog()
	r := start(t, "grpc://"+proxy.addr(), "kedge-agent-x", func(c *link.Config) { c.Log = slogTo(problems) })
	ctx := testContext(t)
	r.engine.awaitCall(ctx, t, "set tgt-1")
	proxy.disconnect()
	problems.await(t, ctx)
	r.engine.awaitCall(ctx, t, "set tgt-1")
	proxy.reconnect()
	stop := s.repeat(snapshotComplete()) // the server may not have noticed yet that the first stream has ended
	calls := r.engine.awaitCall(ctx, t, "pending 0")
	stop()
	if slices.Index(calls, "pending 0") != len(calls)-1 {
		t.Errorf("calls = %q, want prunes to be allowed once, after the snapshot", calls)
	}
	proxy.disconnect()
	problems.await(t, ctx)
	r.engine.awaitCall(ctx, t, "pending 0") // prunes stay allowed without a connection
}

// When the server names another agent, nothing of the previous one is sent to it, not even a report of an engine that has
// not stopped yet.
func TestAnotherAgentStartsWithoutState(t *testing.T) {
	t.Parallel()
	d, content := desire(configMaps(t, 1, 10))
	d.Bundle = content
	one, other := &scriptedServer{desired: d}, &scriptedServer{desired: d}
	other.desired.Target, other.agent = "tgt-2", "agt-2"
	proxy := newTCPProxy(t, strings.TrimPrefix(one.serve(t), "grpc://"))
	next := strings.TrimPrefix(other.serve(t), "grpc://")
	var r *testClient
	ready := make(chan struct{})
	engines := map[fleet.AgentID]*memoryEngine{}
	r = start(t, "grpc://"+proxy.addr(), "kedge-agent-x", func(c *link.Config) {
		c.Welcomed = func(_ context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
			<-ready
			for _, previous := range engines {
				previous.reporter.Status(engine.Status{Target: "tgt-1", Observed: fleet.Observed{Sync: fleet.SyncFailed, AsOf: time.Now()}})
			}
			if engines[w.AgentID] == nil {
				engines[w.AgentID] = &memoryEngine{reporter: r.Reporter(w.AgentID), changed: make(chan struct{}, 1)}
			}
			return engines[w.AgentID], nil, nil
		}
	})
	close(ready)
	ctx := testContext(t)
	one.status(ctx, t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncSynced) })
	proxy.setServer(next)
	proxy.disconnect()
	proxy.reconnect()
	mine := func(st *agentv1.Status) bool {
		if st.GetTarget() == "tgt-1" {
			t.Errorf("the other agent reports %v", st)
		}
		return st.GetTarget() != "tgt-1"
	}
	other.status(ctx, t, mine)
	// A report of the first agent would have been sent before this one.
	r.Status(engine.Status{Target: "tgt-3", Observed: fleet.Observed{Sync: fleet.SyncSynced}})
	other.status(ctx, t, func(st *agentv1.Status) bool { return mine(st) && st.GetTarget() == "tgt-3" })
}

// repeat sends a frame on the current stream repeatedly, until it is stopped.
func (s *scriptedServer) repeat(f *agentv1.ConnectResponse) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case s.more <- f:
			case <-quit:
				return
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
