package gateway

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// each calls fn for every session.
func (g *Gateway) each(fn func(*session)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sessions := range g.sessions {
		for s := range sessions {
			fn(s)
		}
	}
}

// all returns every session.
func (g *Gateway) all() []*session {
	var out []*session
	g.each(func(s *session) { out = append(out, s) })
	return out
}

// ofAgent calls fn for every session of an agent.
func (g *Gateway) ofAgent(agent fleet.AgentID, fn func(*session)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.sessions[agent] {
		fn(s)
	}
}

// join adds a session; it reports false when the gateway is stopping.
func (g *Gateway) join(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if g.sessions[s.agent.ID] == nil {
		g.sessions[s.agent.ID] = map[*session]struct{}{}
	}
	g.sessions[s.agent.ID][s] = struct{}{}
	g.tenants[s.agent.TenantID]++
	g.count++
	g.worked.Add(1)
	g.metrics.connected.Set(float64(g.count))
	if s.asked != g.credentials.Load() {
		g.rechecks.add(s)
	}
	return true
}

func (g *Gateway) leave(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s.agent.ID][s]; !ok {
		return
	}
	delete(g.sessions[s.agent.ID], s)
	if len(g.sessions[s.agent.ID]) == 0 {
		delete(g.sessions, s.agent.ID)
	}
	if g.tenants[s.agent.TenantID]--; g.tenants[s.agent.TenantID] == 0 {
		delete(g.tenants, s.agent.TenantID)
	}
	g.count--
	g.metrics.connected.Set(float64(g.count))
	if g.stopping && g.count == 0 {
		close(g.empty)
	}
}

// drain says goodbye to every agent and waits for them to go, for a while.
func (g *Gateway) drain() {
	g.mu.Lock()
	g.stopping = true
	n := g.count
	if n == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	// What has been reported is confirmed before the goodbye: otherwise it would be sent again.
	settling, cancel := context.WithTimeout(context.Background(), g.cfg.StopGrace/4)
	g.intake.settle(settling)
	cancel()
	g.each(func(s *session) { s.sayGoodbye("the server is stopping", reconnectWithin(n)) })
	select {
	case <-g.empty:
	case <-time.After(g.cfg.StopGrace):
		for _, s := range g.all() {
			s.end(errStopped)
			s.gone() // not when its handler returns: nobody writes down its end then
		}
	}
}

// reconnectWithin spreads the return of n agents to about 500 per second.
func reconnectWithin(n int) time.Duration {
	return max(time.Second, time.Duration(n)*2*time.Millisecond)
}
