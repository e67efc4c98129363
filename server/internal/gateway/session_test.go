package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

func randomText(n int) string {
	var out strings.Builder
	for range n {
		out.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[rand.IntN(64)])
	}
	return out.String()
}

// covers: C11
func TestInvalidTokenIsRejected(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	srv := serve(t, m, gatewaytest.Options{})
	for _, token := range []string{"", "kedge-agent-wrong"} {
		if err := dial(t, srv, token).ended(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("with token %q the stream ended with %v, want Unauthenticated", token, err)
		}
	}
	if c := m.Counts(); c.Connected != 0 {
		t.Errorf("%d connections were recorded for invalid tokens", c.Connected)
	}
}

// covers: C7
func TestRevokedTokenLosesItsStream(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	_, other := m.Enroll("edge-2")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	stays, _ := connect(t, srv, other, nil)
	stays.snapshot()

	began := time.Now()
	m.Revoke(token)
	if err := p.ended(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v, want Unauthenticated", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stream ended after %s, want at most 5 s", took)
	}
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Errorf("the session of the other agent ended: %v", err)
	}
}

// covers: C7 (a revocation between the token lookup and the agent's Hello)
func TestTokenRevokedDuringHandshakeLosesItsStream(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	open, _ := connect(t, srv, token, nil)
	open.snapshot()
	lookups := m.Counts().Authenticated
	pending := dial(t, srv, token)
	if err := m.AwaitAuthenticated(within(t), lookups+1); err != nil {
		t.Fatal(err)
	}
	m.Revoke(token)
	if err := open.ended(); status.Code(err) != codes.Unauthenticated { // the gateway has received the revocation
		t.Fatalf("the open session ended with %v", err)
	}
	err := pending.handshake()
	if err == nil {
		err = pending.ended()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the session that started after the revocation ended with %v, want Unauthenticated", err)
	}
}

// covers: C6
func TestReplicasAndAgentsAreDistinguished(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	a, tokenA := m.Enroll("edge-1")
	b, tokenB := m.Enroll("edge-2")
	srv := serve(t, m, gatewaytest.Options{})
	type key struct {
		agent   fleet.AgentID
		replica string
	}
	want := map[key]bool{{a.ID, "r-0"}: true, {a.ID, "r-1"}: true, {b.ID, "r-0"}: true}
	sessions := map[fleet.SessionID]bool{}
	for _, c := range []struct{ token, replica string }{{tokenA, "r-0"}, {tokenA, "r-1"}, {tokenB, "r-0"}} {
		_, w := connect(t, srv, c.token, func(h *wire.Hello) { h.Replica, h.ClusterUID = c.replica, "same-cluster" })
		sessions[w.Session] = true
	}
	if err := m.AwaitOpen(within(t), 3); err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 3 {
		t.Errorf("%d different session ids, want 3", len(sessions))
	}
	for _, c := range m.Connections() {
		if !want[key{c.AgentID, c.Replica}] || c.Version != "test" || c.ClusterUID != "same-cluster" {
			t.Errorf("unexpected connection %+v", c)
		}
		delete(want, key{c.AgentID, c.Replica})
	}
}

// covers: C10, D7
func TestSilentAgentIsDisconnectedAfterItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 4 * time.Second
		m := gatewaytest.NewMemory()
		_, token := m.Enroll("edge-1")
		p, w := connectInMemory(t, m, token, gateway.Config{Lease: lease})
		if w.Lease != lease {
			t.Fatalf("the lease in Welcome is %s, want %s", w.Lease, lease)
		}
		p.snapshot()
		for range 8 { // twice the lease
			<-time.After(lease / 4)
			p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}})
		}
		last := time.Now()
		synctest.Wait()
		if open := m.Connections(); len(open) != 1 || !open[0].Connected() {
			t.Fatalf("connections = %+v, want one, kept open by heartbeats", open)
		}
		// From here on the agent sends nothing, as after a power failure.
		if err := m.AwaitOpen(within(t), 0); err != nil {
			t.Fatal(err)
		}
		c := m.Connections()[0]
		if shown := c.DisconnectedAt.Sub(last); shown != lease {
			t.Errorf("the agent was shown as connected for %s after its last frame, want %s", shown, lease)
		}
		if !c.LastSeenAt.Equal(last) {
			t.Errorf("last seen at %s, but its last frame was sent at %s", c.LastSeenAt, last)
		}
		if err := p.ended(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the stream ended with %v, want DeadlineExceeded", err)
		}
	})
}

// covers: C10
func TestBrokenConnectionIsRecorded(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	p.cancel()
	if err := m.AwaitOpen(within(t), 0); err != nil {
		t.Fatal(err)
	}
}

// covers: C11
func TestClockSkewIsReported(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	connect(t, srv, token, func(h *wire.Hello) { h.Clock = time.Now().Add(-10 * time.Minute) })
	if err := m.AwaitEvents(within(t), 1); err != nil {
		t.Fatal(err)
	}
	e := m.Events()[0].Event
	if e.Reason != "ClockSkew" || e.Type != fleet.EventWarning || !strings.Contains(e.Message, "10m0s behind") {
		t.Errorf("event = %+v, want a warning about ten minutes", e)
	}
}

// covers: C9
func TestStopSendsGoodbye(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Stop() }()
	if g := p.recv().GetGoodbye(); g.GetReconnectWithinMilliseconds() < 1000 || g.GetReason() == "" {
		t.Errorf("received %v, want a Goodbye that spreads reconnects over at least a second", g)
	}
	if err := p.ended(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want io.EOF", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop() = %v", err)
	}
	if c := m.Connections()[0]; c.Connected() {
		t.Error("the connection is shown as open after the server stopped")
	}
}

func TestOldConnectionsEndWithGoodbye(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{MaxAge: 200 * time.Millisecond})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	if g := p.recv().GetGoodbye(); g == nil {
		t.Error("no Goodbye at the maximum age of the connection")
	}
}

func TestProtocolErrorEndsTheStream(t *testing.T) {
	t.Parallel()
	hello := func() *agentv1.ConnectRequest {
		return &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: wire.Hello{Replica: "r"}.Proto()}}
	}
	beat := &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}}
	tests := []struct {
		name, reason string
		frames       []*agentv1.ConnectRequest
	}{
		{"no hello first", "the first frame must be Hello", []*agentv1.ConnectRequest{beat}},
		{"hello twice", "a session belongs to one replica", []*agentv1.ConnectRequest{hello(), hello()}},
		{"bad target", "the gateway validates target ids", []*agentv1.ConnectRequest{hello(), {Frame: &agentv1.ConnectRequest_Status{Status: &agentv1.Status{Target: "UPPER"}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			_, token := m.Enroll("edge-1")
			p := dial(t, serve(t, m, gatewaytest.Options{}), token)
			for _, f := range tt.frames {
				p.send(f)
			}
			if err := p.ended(); status.Code(err) != codes.InvalidArgument {
				t.Errorf("the stream ended with %v, want InvalidArgument: %s", err, tt.reason)
			}
		})
	}
}

// covers: C7
func TestRevocationEndsABlockedStream(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("stuck")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	// More than the flow-control window of the agent: its handler blocks.
	big := configMap(t, randomText(20_000))
	for range 30 {
		m.Deploy(agent, "big", big)
	}
	awaitDesired(t, srv, 3)
	m.Revoke(token)
	if err := m.AwaitOpen(within(t), 0); err != nil {
		t.Error(err)
	}
	p.cancel()
}

// awaitDesired waits until the server has sent n desired states.
func awaitDesired(t *testing.T, s *gatewaytest.Server, n float64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func(context.Context) error {
		families, err := s.Metrics.Gather()
		if err != nil {
			return err
		}
		sent := 0.
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "kedge_gateway_desired_sent_total" {
					sent += metric.GetCounter().GetValue()
				}
			}
		}
		if sent < n {
			return fmt.Errorf("%v were sent", sent)
		}
		return nil
	})
}
