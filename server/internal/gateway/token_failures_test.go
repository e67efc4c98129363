package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

// slowLookups is a control whose database does not answer lookups of tokens that begin with "slow".
type slowLookups struct {
	*gatewaytest.Memory
	asked atomic.Int64
}

func (s *slowLookups) AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	if strings.HasPrefix(token, "slow") {
		s.asked.Add(1)
		<-ctx.Done()
		return fleet.Agent{}, fleet.Tenant{}, fleet.AgentToken{}, auth.ErrUnauthenticated
	}
	return s.Memory.AuthenticateAgentToken(ctx, token)
}

// blockLookups opens streams with tokens whose lookup blocks. It returns when want lookups are in progress.
func blockLookups(t *testing.T, s *gatewaytest.Server, control *slowLookups, streams int, want int64) {
	t.Helper()
	for range streams {
		dial(t, s, "slow")
	}
	for tick := time.Tick(time.Millisecond); control.asked.Load() < want; <-tick {
		if t.Context().Err() != nil {
			t.Fatal("the gateway does not look up the tokens")
		}
	}
}

// covers: C7 (lookups of other tokens do not delay a revocation)
func TestRevocationDoesNotWaitForOtherTokens(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	control := &slowLookups{Memory: m}
	srv := serveControl(t, control, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	blockLookups(t, srv, control, 40, 8)
	m.Revoke(token)
	if err := p.ended(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the session with the revoked token ended with %v", err)
	}
}

// covers: C12 (invalid tokens are limited by address, valid tokens are not)
func TestInvalidTokensDoNotLockOutAgentsOfTheSameAddress(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	_, fresh := m.Enroll("edge-2")
	control := &slowLookups{Memory: m}
	srv := serveControl(t, control, gatewaytest.Options{Limits: gateway.Limits{InvalidTokens: gateway.Rate{PerSecond: 0.001, Burst: 3}}})
	first, _ := connect(t, srv, token, nil)
	first.cancel()
	for range 4 {
		if err := dial(t, srv, "wrong").ended(); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("an invalid token returned %v", err)
		}
	}
	if n := limited(t, srv, "token lookups"); n < 1 {
		t.Errorf("%v lookups beyond the limit were counted, want at least 1", n)
	}
	connect(t, srv, fresh, nil) // an agent that was never connected here, from the same address

	// Now the address has more lookups in progress than it has slots. An agent with a known token connects.
	blockLookups(t, srv, control, 40, 2)
	connect(t, srv, token, nil)
	if n := control.asked.Load(); n > 2 {
		t.Errorf("an address over its limit has %d concurrent lookups, want at most 2", n)
	}
}

func TestConnectionWithoutAStreamIsClosed(t *testing.T) {
	t.Parallel()
	srv := serve(t, gatewaytest.NewMemory(), gatewaytest.Options{MaxIdle: 10 * time.Millisecond})
	cc, err := grpc.NewClient("passthrough:///"+srv.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cc.Connect()
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection stays in state %s", state)
		}
	}
	if !cc.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("a connection without a stream stays open")
	}
}
