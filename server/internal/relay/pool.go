package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

var (
	// errNotConnected means that no replica of an agent that offers tunnels is connected.
	errNotConnected = errors.New("the agent is not connected")
	// errNoTunnel means that an agent did not open a tunnel in time.
	errNoTunnel = errors.New("the agent did not open a tunnel in time")
)

const (
	// waitForTunnel limits how long a request waits for a tunnel.
	waitForTunnel = 10 * time.Second
	// askAgain is a backstop for requests that are lost with the connection of an agent.
	askAgain = 3 * time.Second
	// idleFor is how long an unused tunnel stays open.
	idleFor = 5 * time.Minute
	// minUnused and maxUnused limit the unused tunnels that are kept for the next requests. An unused tunnel saves one round
	// trip to the agent.
	minUnused, maxUnused = 2, 16
	// maxIdle limits the unused tunnels of an agent.
	maxIdle = 64
)

// pools holds the unused tunnels of each agent.
type pools struct {
	// ask asks an agent for tunnels. It reports false if the agent is not connected.
	ask func(agent fleet.AgentID, n int) bool

	mu     sync.Mutex
	agents map[fleet.AgentID]*pool
}

// pool has the tunnels of one agent. pools.mu protects it.
type pool struct {
	opening  int // streams whose first frame has not arrived
	idle     []*offer
	waiting  []chan *offer // oldest first; each has a buffer
	used     int
	asked    int       // tunnels that were asked for and have not arrived
	progress time.Time // when a tunnel arrived, or was asked for while none was
}

// offer is a tunnel that an agent has opened.
type offer struct {
	agent  fleet.Agent
	stream gateway.TunnelStream
	conn   *tunnel.Conn
	ctx    context.Context //nolint:containedctx // of the stream
	abort  context.CancelFunc
	state  offerState // pools.mu protects it
}

type offerState int

const (
	offerIdle offerState = iota
	offerUsed
	offerEnded
)

func newPools(ask func(agent fleet.AgentID, n int) bool) *pools {
	return &pools{ask: ask, agents: map[fleet.AgentID]*pool{}}
}

// serve keeps a stream of an agent until it is not needed any more. passOn serves one that is for another server.
func (p *pools) serve(
	agent fleet.Agent, stream gateway.TunnelStream, elsewhere func(server string) bool, passOn func(agent fleet.Agent, server string, stream gateway.TunnelStream) error,
) error {
	tooMany := status.Errorf(codes.ResourceExhausted, "the agent has %d unused tunnels, which is the limit", maxIdle)
	if !p.begin(agent.ID) {
		return tooMany
	}
	server, err := awaitReady(stream)
	if err != nil {
		p.notReady(agent.ID)
		return err
	}
	if elsewhere(server) {
		p.notReady(agent.ID)
		return passOn(agent, server, stream)
	}
	ctx, abort := context.WithCancel(stream.Context())
	defer abort()
	o := &offer{agent: agent, stream: stream, ctx: ctx, abort: abort}
	// At once: it limits what the agent may send.
	o.conn = tunnel.Server(stream, abort, tunnel.Addr("agent "+agent.Name))
	if !p.add(o) {
		return tooMany
	}
	defer p.ended(o)
	expire := time.AfterFunc(idleFor, func() { p.expire(o) })
	defer expire.Stop()
	<-ctx.Done()
	return nil
}

// awaitReady receives the first frame, and returns the server that has asked for the tunnel. When it returns an error, the handler
// returns, which ends the goroutine.
func awaitReady(stream gateway.TunnelStream) (server string, err error) {
	type result struct {
		server string
		err    error
	}
	ready := make(chan result, 1)
	go func() {
		first, err := stream.Recv()
		if err == nil && first.GetReady() == nil {
			err = status.Error(codes.InvalidArgument, "Ready must be the first frame of a tunnel")
		}
		ready <- result{first.GetReady().GetServer(), err}
	}()
	timeout := time.NewTimer(waitForTunnel)
	defer timeout.Stop()
	select {
	case r := <-ready:
		return r.server, r.err
	case <-timeout.C:
		return "", status.Error(codes.DeadlineExceeded, "no Ready within "+waitForTunnel.String())
	case <-stream.Context().Done():
		return "", stream.Context().Err()
	}
}

func (p *pools) poolLocked(agent fleet.AgentID) *pool {
	of := p.agents[agent]
	if of == nil {
		of = &pool{}
		p.agents[agent] = of
	}
	return of
}

func (p *pools) dropLocked(agent fleet.AgentID) {
	if of := p.agents[agent]; of != nil && len(of.idle)+len(of.waiting)+of.used+of.opening == 0 {
		delete(p.agents, agent)
	}
}

// begin counts a new stream. It reports false if there are too many.
func (p *pools) begin(agent fleet.AgentID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.poolLocked(agent)
	if of.opening+len(of.idle) >= maxIdle+len(of.waiting) {
		return false
	}
	of.opening++
	return true
}

func (p *pools) notReady(agent fleet.AgentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poolLocked(agent).opening--
	p.dropLocked(agent)
}

// add offers a tunnel. It reports false if there are too many.
func (p *pools) add(o *offer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.poolLocked(o.agent.ID)
	of.opening--
	of.asked, of.progress = max(0, of.asked-1), time.Now()
	ok := of.offerLocked(o)
	p.dropLocked(o.agent.ID)
	return ok
}

// offerLocked gives a tunnel to the request that has waited longest, or keeps it.
func (of *pool) offerLocked(o *offer) bool {
	switch {
	case o.ctx.Err() != nil:
		o.state = offerEnded
	case len(of.waiting) > 0:
		of.waiting[0] <- o
		of.waiting = of.waiting[1:]
		o.state = offerUsed
		of.used++
	case len(of.idle) >= maxIdle:
		o.state = offerEnded
		return false
	default:
		o.state = offerIdle
		of.idle = append(of.idle, o)
	}
	return true
}

// expire ends a tunnel that is not used.
func (p *pools) expire(o *offer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.state == offerIdle {
		p.endLocked(o)
		o.abort()
	}
}

// ended records the end of a stream.
func (p *pools) ended(o *offer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(o)
}

func (p *pools) endLocked(o *offer) {
	of := p.poolLocked(o.agent.ID)
	switch o.state {
	case offerIdle:
		of.idle = slices.DeleteFunc(of.idle, func(other *offer) bool { return other == o })
	case offerUsed:
		of.used--
	}
	o.state = offerEnded
	p.dropLocked(o.agent.ID)
}

// take returns a tunnel to an agent. It waits until the agent has opened one.
func (p *pools) take(ctx context.Context, agent fleet.AgentID) (*offer, error) {
	o, arrives, err := p.takeNow(agent)
	if o != nil || err != nil {
		return o, err
	}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		select {
		case o := <-arrives:
			return o, nil
		case <-ctx.Done():
			p.giveUp(agent, arrives)
			return nil, context.Cause(ctx)
		case <-again.C:
			if !p.refill(agent) {
				p.giveUp(agent, arrives)
				return nil, errNotConnected
			}
		}
	}
}

// takeNow returns an unused tunnel, or a channel that gets the next one.
func (p *pools) takeNow(agent fleet.AgentID) (*offer, chan *offer, error) {
	p.mu.Lock()
	of := p.poolLocked(agent)
	for n := len(of.idle); n > 0; n = len(of.idle) { // the newest: unused ones expire
		o := of.idle[n-1]
		of.idle = of.idle[:n-1]
		if o.ctx.Err() != nil {
			o.state = offerEnded
			continue
		}
		o.state = offerUsed
		of.used++
		p.mu.Unlock()
		p.refill(agent)
		return o, nil, nil
	}
	arrives := make(chan *offer, 1)
	of.waiting = append(of.waiting, arrives)
	p.mu.Unlock()
	if p.refill(agent) {
		return nil, arrives, nil
	}
	p.giveUp(agent, arrives)
	return nil, nil, errNotConnected
}

// giveUp ends the wait for a tunnel. One that has arrived in the meantime is offered to others.
func (p *pools) giveUp(agent fleet.AgentID, arrives chan *offer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.poolLocked(agent)
	of.waiting = slices.DeleteFunc(of.waiting, func(c chan *offer) bool { return c == arrives })
	select {
	case o := <-arrives:
		if o.state == offerUsed {
			of.used--
			if !of.offerLocked(o) {
				o.abort()
			}
		}
	default:
	}
	p.dropLocked(agent)
}

// refill asks for as many tunnels as are waited for, and for some more. It reports false if the agent is not connected.
func (p *pools) refill(agent fleet.AgentID) bool {
	p.mu.Lock()
	of := p.poolLocked(agent)
	if time.Since(of.progress) > askAgain {
		of.asked = 0 // they are lost
	}
	missing := len(of.waiting) + min(max(of.used/2, minUnused), maxUnused) - len(of.idle) - of.asked
	missing = min(missing, wire.MaxTunnels-of.used-len(of.idle)-of.asked)
	if missing > 0 {
		if of.asked == 0 {
			of.progress = time.Now()
		}
		of.asked += missing
	}
	p.dropLocked(agent)
	p.mu.Unlock()
	if missing <= 0 || p.ask(agent, missing) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of.asked = max(0, of.asked-missing)
	return false
}

// open takes a tunnel to an agent that is connected to this server, and says who the caller is.
func (p *pools) open(ctx context.Context, agent fleet.Agent, c wire.TunnelCaller) (*offer, error) {
	for {
		o, err := p.take(ctx, agent.ID)
		if err != nil {
			return nil, err
		}
		err = o.stream.Send(&agentv1.TunnelResponse{Frame: &agentv1.TunnelResponse_Open{Open: c.Proto()}})
		if err != nil || o.ctx.Err() != nil {
			o.abort() // it ended before it was used: take another one
			continue
		}
		return o, nil
	}
}
