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

// slowForStrangers is a control room whose database does not answer about tokens that begin with "slow".
type slowForStrangers struct {
	*gatewaytest.Memory
	asked atomic.Int64
}

func (s *slowForStrangers) AuthenticateAgentToken(ctx context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	if strings.HasPrefix(token, "slow") {
		s.asked.Add(1)
		<-ctx.Done()
		return fleet.Agent{}, fleet.Tenant{}, fleet.AgentToken{}, auth.ErrUnauthenticated
	}
	return s.Memory.AuthenticateAgentToken(ctx, token)
}

// occupy opens streams with tokens that nobody answers for, and returns when want of them are looked up.
func occupy(t *testing.T, s *gatewaytest.Server, room *slowForStrangers, streams int, want int64) {
	t.Helper()
	for range streams {
		dial(t, s, "slow")
	}
	for tick := time.Tick(time.Millisecond); room.asked.Load() < want; <-tick {
		if t.Context().Err() != nil {
			t.Fatal("the tokens of strangers are not looked up")
		}
	}
}

// covers: C7 (a revoked token loses its streams, whoever else knocks)
func TestRevocationDoesNotWaitForTokensOfStrangers(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	room := &slowForStrangers{Memory: m}
	srv := serveControl(t, room, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	occupy(t, srv, room, 40, 8)
	m.Revoke(token)
	if err := p.ended(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the session of a revoked token ended with %v", err)
	}
}

// covers: C12 (wrong tokens are limited by address; valid ones never are)
func TestWrongTokensOfAnAddressDoNotKeepOutItsAgents(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	_, fresh := m.Enroll("edge-2")
	room := &slowForStrangers{Memory: m}
	srv := serveControl(t, room, gatewaytest.Options{Limits: gateway.Limits{WrongTokens: gateway.Rate{PerSecond: 0.001, Burst: 3}}})
	first, _ := connect(t, srv, token, nil)
	first.cancel()
	for range 4 {
		if err := dial(t, srv, "wrong").ended(); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("a wrong token gave %v", err)
		}
	}
	if n := limited(t, srv, "token lookups"); n < 1 {
		t.Errorf("%v lookups beyond the limit were counted", n)
	}
	connect(t, srv, fresh, nil) // an agent that was never seen here, from the same address

	// Now the address has more lookups under way than there are places. An agent that is known gets in.
	occupy(t, srv, room, 40, 2)
	connect(t, srv, token, nil)
	if n := room.asked.Load(); n > 2 {
		t.Errorf("an address over its limit had %d tokens looked up at once", n)
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
			t.Fatalf("the connection stays %s", state)
		}
	}
	if !cc.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("a connection that never spoke stays open")
	}
}
