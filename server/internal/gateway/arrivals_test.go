package gateway_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// listener notes in which order agents were served.
type listener struct {
	*gatewaytest.Memory
	mu    sync.Mutex
	heard []fleet.AgentID
}

func (l *listener) note(id fleet.AgentID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, id)
}

func (l *listener) AgentConnected(ctx context.Context, c fleet.Connection) error {
	l.note(c.AgentID)
	for range 1000 { // whoever else is let in gets here meanwhile
		runtime.Gosched()
	}
	return l.Memory.AgentConnected(ctx, c)
}

func (l *listener) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	if ids == nil {
		l.note(agent.ID)
	}
	return l.Memory.TargetsOf(ctx, agent, ids)
}

// covers: C9
func TestAgentsThatComeAtOnceAreSeenThroughOneAfterAnother(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	l := &listener{Memory: memory}
	s := serveControl(t, l, gatewaytest.Options{Arrivals: 1})
	var peers []*peer
	for i := range 16 {
		_, token := memory.Enroll(fmt.Sprintf("edge-%d", i))
		peers = append(peers, dial(t, s, token))
	}
	var all errgroup.Group
	for _, p := range peers {
		all.Go(p.introduce)
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for turn := range slices.Chunk(l.heard, 2) {
		if slices.ContainsFunc(turn, func(id fleet.AgentID) bool { return id != turn[0] }) {
			t.Fatalf("another agent was served before one had its Welcome: %v", l.heard)
		}
	}
}

func TestAnAgentThatSaysNothingKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	s := serve(t, memory, gatewaytest.Options{Arrivals: 1})
	_, silent := memory.Enroll("silent")
	_, token := memory.Enroll("edge")
	p := dial(t, s, silent)
	connect(t, s, token, nil)
	if err := p.introduce(); err != nil {
		t.Error(err)
	}
}

func TestHeldThatComesEarlyIsNotLost(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	s := serve(t, memory, gatewaytest.Options{})
	agent, token := memory.Enroll("edge")
	memory.Deploy(agent, "shop", configMap(t, "1"))
	for range 20 {
		p := dial(t, s, token)
		hello := wire.Hello{AgentVersion: "test", Replica: "r-0", Clock: time.Now()}
		p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}})
		p.held()
		p.recv() // Welcome
		if sent := p.snapshot(); len(sent) != 1 {
			t.Fatalf("%d targets were sent, want the one", len(sent))
		}
		p.cancel()
	}
}
