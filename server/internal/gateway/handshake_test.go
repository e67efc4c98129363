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

// orderRecorder records the order in which agents are served.
type orderRecorder struct {
	*gatewaytest.Memory
	mu     sync.Mutex
	served []fleet.AgentID
}

func (l *orderRecorder) record(id fleet.AgentID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = append(l.served, id)
}

func (l *orderRecorder) AgentConnected(ctx context.Context, c fleet.Connection) error {
	l.record(c.AgentID)
	for range 1000 { // another agent with a slot would get here in the meantime
		runtime.Gosched()
	}
	return l.Memory.AgentConnected(ctx, c)
}

func (l *orderRecorder) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	if ids == nil {
		l.record(agent.ID)
	}
	return l.Memory.TargetsOf(ctx, agent, ids)
}

// covers: C9
func TestConcurrentHandshakesAreLimited(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	l := &orderRecorder{Memory: memory}
	s := serveControl(t, l, gatewaytest.Options{Handshakes: 1})
	var agents []*testAgent
	for i := range 16 {
		_, token := memory.Enroll(fmt.Sprintf("edge-%d", i))
		agents = append(agents, dial(t, s, token))
	}
	var all errgroup.Group
	for _, p := range agents {
		all.Go(p.handshake)
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for calls := range slices.Chunk(l.served, 2) {
		if slices.ContainsFunc(calls, func(id fleet.AgentID) bool { return id != calls[0] }) {
			t.Fatalf("another agent was served before the Welcome of the previous one: %v", l.served)
		}
	}
}

func TestAgentWithoutHelloOccupiesNoHandshakeSlot(t *testing.T) {
	t.Parallel()
	memory := gatewaytest.NewMemory()
	s := serve(t, memory, gatewaytest.Options{Handshakes: 1})
	_, silent := memory.Enroll("silent")
	_, token := memory.Enroll("edge")
	p := dial(t, s, silent)
	connect(t, s, token, nil)
	if err := p.handshake(); err != nil {
		t.Error(err)
	}
}

func TestTargetStatesBeforeWelcomeAreNotLost(t *testing.T) {
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
			t.Fatalf("%d targets were sent, want one", len(sent))
		}
		p.cancel()
	}
}
