package gateway_test

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

func TestSnapshotSendsOnlyDifferences(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason string
		hold         func(fleet.Target) *wire.TargetState
		wantSent     bool
		wantHold     bool
		wantAhead    bool
	}{
		{"nothing held", "a new agent needs everything", func(fleet.Target) *wire.TargetState { return nil }, true, false, false},
		{"the same", "the agent has that state", func(d fleet.Target) *wire.TargetState { h := heldOf(d); return &h }, false, false, false},
		{"older", "the agent needs the newest state only", func(d fleet.Target) *wire.TargetState {
			h := heldOf(d)
			h.Generation--
			return &h
		}, true, false, false},
		{"the same without the bundle", "the agent restarted and lost the objects", func(d fleet.Target) *wire.TargetState {
			h := heldOf(d)
			h.Digest = ""
			return &h
		}, true, false, false},
		{"newer", "the server lost a state: it must not send anything", func(d fleet.Target) *wire.TargetState {
			h := heldOf(d)
			h.Generation++
			return &h
		}, false, false, true},
		{"the same version with another digest", "server and agent have different histories: the server must not send anything", func(d fleet.Target) *wire.TargetState {
			h := heldOf(d)
			h.Digest = configMap(t, "elsewhere").Digest()
			return &h
		}, false, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, token := m.Enroll("edge-1")
			target := m.Deploy(agent, "shop", configMap(t, "one"))
			target = m.Desire(target.ID, configMap(t, "two"), func(*fleet.Desired) {})
			srv := serve(t, m, gatewaytest.Options{})
			p, w := connect(t, srv, token, nil)
			if !w.SendTargetStates {
				t.Fatal("the server did not ask for TargetStates, although the hash of the agent is empty")
			}
			var held []wire.TargetState
			if h := tt.hold(target); h != nil {
				held = append(held, *h)
			}
			p.held(held...)
			sent := p.snapshot()
			if got := len(sent) == 1; got != tt.wantSent {
				t.Fatalf("%d desired states sent, want any: %v: %s", len(sent), tt.wantSent, tt.reason)
			}
			if tt.wantSent {
				d := sent[0]
				if d.GetDigest() != target.Desired.Digest || d.GetGeneration() != 2 || len(d.GetBundle()) == 0 || d.GetPolicy().GetHoldPrune() != tt.wantHold {
					t.Errorf("sent %v, want generation 2 inline with hold_prune %v", d, tt.wantHold)
				}
			}
			if got := len(m.Ahead()) == 1; got != tt.wantAhead {
				t.Errorf("ahead = %v, want %v: %s", m.Ahead(), tt.wantAhead, tt.reason)
			}
		})
	}
}

// covers: C9, D5
func TestMatchingHashSendsNothing(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	first, second := m.Deploy(agent, "a", configMap(t, "a")), m.Deploy(agent, "b", configMap(t, "b"))
	srv := serve(t, m, gatewaytest.Options{})
	p, w := connect(t, srv, token, func(h *wire.Hello) {
		h.StateHash = wire.StateHash([]wire.TargetState{heldOf(second), heldOf(first)})
	})
	if w.SendTargetStates || w.SendStatuses {
		t.Errorf("welcome = %+v, want no request: the hashes are equal", w)
	}
	if sent := p.snapshot(); len(sent) != 0 {
		t.Errorf("sent %v, want nothing", sent)
	}
	if c := m.Counts(); c.Bundles != 0 {
		t.Errorf("%d bundles were read for an agent that needs none", c.Bundles)
	}
}

// covers: D5
func TestOnlyTheNewestStateIsDelivered(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMap(t, "0"))
	srv := serve(t, m, gatewaytest.Options{})
	for range 500 { // a month of commits while the agent is away
		target = m.Desire(target.ID, configMap(t, "x"), func(*fleet.Desired) {})
	}
	p, _ := connect(t, srv, token, nil)
	p.held()
	sent := p.snapshot()
	if len(sent) != 1 || sent[0].GetGeneration() != target.Desired.Generation {
		t.Fatalf("%d states sent, want one of generation %d", len(sent), target.Desired.Generation)
	}
	target = m.Desire(target.ID, nil, func(*fleet.Desired) {})
	if d := p.recv().GetDesired(); !d.GetTombstone() || d.GetGeneration() != target.Desired.Generation || d.GetDigest() != "" {
		t.Errorf("received %v, want the tombstone", d)
	}
}

func TestSlowAgentDelaysNoOther(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	slow, slowToken := m.Enroll("slow")
	fast, fastToken := m.Enroll("fast")
	srv := serve(t, m, gatewaytest.Options{})
	stuck, _ := connect(t, srv, slowToken, nil)
	stuck.snapshot()
	p, _ := connect(t, srv, fastToken, nil)
	p.snapshot()
	// The slow agent reads nothing. The server sends it more than its flow-control window.
	big := configMap(t, randomText(20_000))
	for range 30 {
		m.Deploy(slow, "big", big)
	}
	target := m.Deploy(fast, "small", configMap(t, "v"))
	if d := p.recv().GetDesired(); d.GetTarget() != string(target.ID) {
		t.Errorf("the fast agent received %v, want its target", d)
	}
}

func TestOneReadServesEveryAgent(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	release := make(chan struct{})
	var reads atomic.Int32
	m.SlowBundle = func() {
		reads.Add(1)
		<-release
	}
	set := configMap(t, "v")
	srv := serve(t, m, gatewaytest.Options{})
	var agents []*testAgent
	for range 10 {
		agent, token := m.Enroll("edge")
		m.Deploy(agent, "shop", set)
		p, _ := connect(t, srv, token, nil)
		p.held()
		agents = append(agents, p)
	}
	close(release)
	for _, p := range agents {
		if sent := p.snapshot(); len(sent) != 1 || len(sent[0].GetBundle()) == 0 {
			t.Fatalf("sent %v, want the bundle inline", sent)
		}
	}
	if reads.Load() != 1 {
		t.Errorf("the bundle was read %d times for 10 agents, want once", reads.Load())
	}
}

func TestFetchBundleResumesAtAnOffset(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	set := configMap(t, randomText(300_000))
	digest, content, _ := set.Pack()
	m.Deploy(agent, "shop", set)
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.held()
	if sent := p.snapshot(); len(sent) != 1 || len(sent[0].GetBundle()) != 0 {
		t.Fatalf("sent %d states, want one without its bundle: the bundle is too large", len(sent))
	}
	for _, offset := range []int{0, 1, 100_000, len(content)} {
		stream, err := p.rpc.FetchBundle(p.ctx, &agentv1.FetchBundleRequest{Digest: digest, Offset: int64(offset)})
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, stream, int64(len(content))); string(got) != string(content[offset:]) {
			t.Errorf("offset %d returned %d bytes, want the last %d of the bundle", offset, len(got), len(content)-offset)
		}
	}
}

func readAll(t *testing.T, stream grpc.ServerStreamingClient[agentv1.FetchBundleResponse], total int64) []byte {
	t.Helper()
	var out []byte
	for first := true; ; first = false {
		resp, err := stream.Recv()
		if err != nil {
			return out
		}
		if first && resp.GetTotal() != total {
			t.Errorf("total = %d, want %d", resp.GetTotal(), total)
		}
		out = append(out, resp.GetChunk()...)
	}
}

func TestDetachedStateIsSentUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	kept, target := m.Deploy(agent, "kept", configMap(t, "k")), m.Deploy(agent, "shop", configMap(t, "v"))
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, func(h *wire.Hello) { h.StateHash = wire.StateHash([]wire.TargetState{heldOf(kept), heldOf(target)}) })
	p.snapshot()
	detached := m.Detach(target.ID)
	if d := p.recv().GetDesired(); !d.GetDetached() || d.GetDigest() != "" || d.GetTombstone() || d.GetGeneration() != detached.Desired.Generation {
		t.Fatalf("received %v, want the detached state", d)
	}
	p.cancel()

	// Not acknowledged: the server sends it again.
	again, w := connect(t, srv, token, func(h *wire.Hello) { h.StateHash = wire.StateHash([]wire.TargetState{heldOf(kept)}) })
	if !w.SendTargetStates {
		t.Fatal("the server treats an agent that missed the detached state as up to date")
	}
	again.held(heldOf(kept))
	if sent := again.snapshot(); len(sent) != 1 || !sent[0].GetDetached() {
		t.Fatalf("sent %v, want the detached state", sent)
	}
	released := wire.Status{Target: target.ID, Full: true, Observed: fleet.Observed{
		Version: detached.Desired.Version, Sync: fleet.SyncDetached, Health: fleet.HealthUnknown, AsOf: time.Now(),
	}}
	again.status(released)
	for again.recv().GetStatusStored().GetCount() != 1 {
	}
	again.cancel()

	// Acknowledged: the agent has nothing of the target, and the hashes are equal again.
	last, w := connect(t, srv, token, func(h *wire.Hello) { h.StateHash = wire.StateHash([]wire.TargetState{heldOf(kept)}) })
	if w.SendTargetStates || w.SendStatuses {
		t.Errorf("welcome = %+v, want no request", w)
	}
	if sent := last.snapshot(); len(sent) != 0 {
		t.Errorf("sent %v, want nothing", sent)
	}
}

// A target of a deployment of another tenant, in an environment that this tenant was granted.
func TestTargetsOfOtherTenantsHaveTheirOwnTenantAndBundles(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	other, otherToken := m.Enroll("edge-2")
	guest := fleet.Tenant{ID: "ten-guest", Name: "guest"}
	large := configMap(t, randomText(300_000))
	target := m.DeployOf(guest, agent, "shop", large)
	m.Deploy(other, "own", configMap(t, "v"))
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.held()
	sent := p.snapshot()
	if len(sent) != 1 || sent[0].GetTenant() != "guest" || len(sent[0].GetBundle()) != 0 {
		t.Fatalf("sent %d states, want one of the tenant guest without its bundle", len(sent))
	}
	if err := fetch(p, target.Desired.Digest); err != nil {
		t.Errorf("fetching the bundle of a target of the agent: %v", err)
	}
	// An agent without such a target has no access, even with the digest.
	unrelated, _ := connect(t, srv, otherToken, nil)
	if err := fetch(unrelated, target.Desired.Digest); status.Code(err) != codes.NotFound {
		t.Errorf("fetching a bundle of another agent: %v, want NotFound", err)
	}
	p.status(wire.Status{Target: target.ID, Observed: observed(target, "done"), Full: true})
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
		t.Error(err)
	}
}
