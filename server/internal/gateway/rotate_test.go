package gateway_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// newToken reads until it receives a new token.
func (p *testAgent) newToken() wire.NewToken {
	p.t.Helper()
	for {
		if m := p.recv().GetNewToken(); m != nil {
			token, err := wire.ParseNewToken(m)
			if err != nil {
				p.t.Fatal(err)
			}
			return token
		}
	}
}

func (p *testAgent) tokenStored(op fleet.OperationID, problem string) {
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TokenStored{
		TokenStored: wire.TokenStored{Operation: op, Problem: problem}.Proto(),
	}})
}

// covers: C7
func TestTokenIsReplacedOverTheAgentsOwnConnection(t *testing.T) {
	t.Parallel()
	for _, requested := range []string{"while it is connected", "while it is away"} {
		t.Run(requested, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, old := m.Enroll("edge-1")
			srv := serve(t, m, gatewaytest.Options{})
			var op fleet.OperationID
			if requested == "while it is away" {
				op = m.Rotate(agent)
			}
			p, _ := connect(t, srv, old, nil)
			p.snapshot()
			if op == "" {
				op = m.Rotate(agent)
			}
			token := p.newToken()
			if token.Operation != op || token.Token == old {
				t.Fatalf("received a token of operation %s, want a new token of operation %s", token.Operation, op)
			}
			if !m.Valid(old) {
				t.Fatal("the old token is invalid before the agent has reconnected with the new one")
			}
			p.tokenStored(op, "")
			if err := p.ended(); !errors.Is(err, io.EOF) {
				t.Errorf("the stream ended with %v, want io.EOF", err)
			}
			back, _ := connect(t, srv, token.Token, nil)
			back.snapshot()
			state, message, err := m.AwaitRotation(within(t), op)
			if err != nil || state != fleet.OperationCompleted {
				t.Fatalf("the rotation is %s: %s, %v", state, message, err)
			}
			if m.Valid(old) {
				t.Error("the old token is still valid")
			}
			if err := dial(t, srv, old).ended(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("with the old token the stream ended with %v", err)
			}
		})
	}
}

func TestAgentThatCannotStoreItsNewTokenKeepsTheOldOne(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, old := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, old, nil)
	p.snapshot()
	op := m.Rotate(agent)
	token := p.newToken()
	p.tokenStored(op, "the Secret is read-only")
	state, message, err := m.AwaitRotation(within(t), op)
	if err != nil || state != fleet.OperationFailed || !strings.Contains(message, "read-only") {
		t.Fatalf("the rotation is %s: %q, %v", state, message, err)
	}
	if !m.Valid(old) || m.Valid(token.Token) {
		t.Error("want the old token to be valid and the new one to be invalid")
	}
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// Two replicas of one agent share one token. Only one of them receives the new one.
func TestOneReplicaReceivesTheNewToken(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, old := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	var agents []*testAgent
	for _, replica := range []string{"r-0", "r-1"} {
		p, _ := connect(t, srv, old, func(h *wire.Hello) { h.Replica = replica })
		p.snapshot()
		agents = append(agents, p)
	}
	op := m.Rotate(agent)
	if err := m.AwaitRequested(within(t), op, len(agents)); err != nil {
		t.Fatal(err)
	}
	if n := m.Sent(op); n != 1 {
		t.Errorf("the token was sent %d times, want once", n)
	}
}

// covers: C7
func TestPeriodicRecheckFindsAMissedRevocation(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{Recheck: 100 * time.Millisecond})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	m.RevokeUnnoticed(token)
	if err := p.ended(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v, want Unauthenticated", err)
	}
}
