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

// newToken reads until a new token comes.
func (p *peer) newToken() wire.NewToken {
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

func (p *peer) tokenStored(op fleet.OperationID, problem string) {
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TokenStored{
		TokenStored: wire.TokenStored{Operation: op, Problem: problem}.Proto(),
	}})
}

// covers: C7
func TestTokenIsReplacedOverTheAgentsOwnConnection(t *testing.T) {
	t.Parallel()
	for _, asked := range []string{"while it is connected", "while it is away"} {
		t.Run(asked, func(t *testing.T) {
			t.Parallel()
			m := gatewaytest.NewMemory()
			agent, old := m.Enroll("edge-1")
			srv := serve(t, m, gatewaytest.Options{})
			var op fleet.OperationID
			if asked == "while it is away" {
				op = m.Rotate(agent)
			}
			p, _ := connect(t, srv, old, nil)
			p.snapshot()
			if op == "" {
				op = m.Rotate(agent)
			}
			token := p.newToken()
			if token.Operation != op || token.Token == old {
				t.Fatalf("received a token of operation %s, want a new one of %s", token.Operation, op)
			}
			if !m.Knows(old) {
				t.Fatal("the old token is useless before the agent has come back with the new one")
			}
			p.tokenStored(op, "")
			if err := p.ended(); !errors.Is(err, io.EOF) {
				t.Errorf("the stream ended with %v, want in good order", err)
			}
			back, _ := connect(t, srv, token.Token, nil)
			back.snapshot()
			state, message, err := m.AwaitRotation(within(t), op)
			if err != nil || state != fleet.OperationCompleted {
				t.Fatalf("the rotation is %s: %s, %v", state, message, err)
			}
			if m.Knows(old) {
				t.Error("the old token still lets somebody in")
			}
			if err := dial(t, srv, old).ended(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("with the old token the stream ended with %v", err)
			}
		})
	}
}

func TestAgentThatCannotKeepItsTokenStaysWithTheOldOne(t *testing.T) {
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
	if !m.Knows(old) || m.Knows(token.Token) {
		t.Error("want the old token valid and the new one not")
	}
	if err := m.AwaitOpen(within(t), 1); err != nil {
		t.Errorf("the session did not stay: %v", err)
	}
}

// Two replicas of one agent share one token: only one of them is given the next.
func TestOneReplicaIsGivenTheNewToken(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, old := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	var peers []*peer
	for _, replica := range []string{"r-0", "r-1"} {
		p, _ := connect(t, srv, old, func(h *wire.Hello) { h.Replica = replica })
		p.snapshot()
		peers = append(peers, p)
	}
	op := m.Rotate(agent)
	if err := m.AwaitAsked(within(t), op, len(peers)); err != nil {
		t.Fatal(err)
	}
	if n := m.Handed(op); n != 1 {
		t.Errorf("the token was handed out %d times", n)
	}
}

// covers: C7
func TestRevocationThatNobodyHeardOfIsFoundByTheBackstop(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{Recheck: 100 * time.Millisecond})
	p, _ := connect(t, srv, token, nil)
	p.snapshot()
	m.RevokeUnheard(token)
	if err := p.ended(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v, want Unauthenticated", err)
	}
}
