package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// registry holds the open sessions. It is safe for concurrent use.
type registry struct {
	connected prometheus.Gauge

	mu       sync.Mutex
	agents   map[fleet.AgentID]map[*session]struct{}
	tenants  map[fleet.TenantID]int // number of sessions
	count    int
	stopping bool
	empty    chan struct{} // closed when stopping is set and the last session was removed
}

func newRegistry(connected prometheus.Gauge) *registry {
	return &registry{
		connected: connected, agents: map[fleet.AgentID]map[*session]struct{}{}, tenants: map[fleet.TenantID]int{},
		empty: make(chan struct{}),
	}
}

// forEach calls fn for every session. fn must not call the registry.
func (r *registry) forEach(fn func(*session)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sessions := range r.agents {
		for s := range sessions {
			fn(s)
		}
	}
}

// forEachOf calls fn for every session of an agent. fn must not call the registry.
func (r *registry) forEachOf(agent fleet.AgentID, fn func(*session)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.agents[agent] {
		fn(s)
	}
}

// forEachOfTenant calls fn for each session of an agent of a tenant.
func (r *registry) forEachOfTenant(tenant fleet.TenantID, fn func(*session)) {
	if !r.hasTenant(tenant) {
		return
	}
	r.forEach(func(s *session) {
		if s.agent.TenantID == tenant {
			fn(s)
		}
	})
}

func (r *registry) all() []*session {
	var out []*session
	r.forEach(func(s *session) { out = append(out, s) })
	return out
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *registry) hasTenant(tenant fleet.TenantID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[tenant] > 0
}

// add adds a session. It reports false when the gateway is stopping.
func (r *registry) add(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	if r.agents[s.agent.ID] == nil {
		r.agents[s.agent.ID] = map[*session]struct{}{}
	}
	r.agents[s.agent.ID][s] = struct{}{}
	r.tenants[s.agent.TenantID]++
	r.count++
	r.connected.Set(float64(r.count))
	return true
}

// remove removes a session. It does nothing for one that is not in the registry.
func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.agents[s.agent.ID][s]; !ok {
		return
	}
	delete(r.agents[s.agent.ID], s)
	if len(r.agents[s.agent.ID]) == 0 {
		delete(r.agents, s.agent.ID)
	}
	if r.tenants[s.agent.TenantID]--; r.tenants[s.agent.TenantID] == 0 {
		delete(r.tenants, s.agent.TenantID)
	}
	r.count--
	r.connected.Set(float64(r.count))
	if r.stopping && r.count == 0 {
		close(r.empty)
	}
}

// stop refuses new sessions and returns the number of open ones.
func (r *registry) stop() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	if r.count == 0 {
		close(r.empty)
	}
	return r.count
}

// register adds a session to the registry. It reports false when the gateway is stopping.
func (g *Gateway) register(s *session) bool {
	if !g.sessions.add(s) {
		return false
	}
	g.activity.Add(1)
	// A change after this comparison finds the session in the registry.
	if s.credentialVersion != g.credentialVersion.Load() {
		g.rechecks.add(s)
	}
	return true
}

// drain sends Goodbye to every agent and waits up to StopGrace for their sessions to end.
func (g *Gateway) drain() {
	n := g.sessions.stop()
	// Confirm reported statuses before the Goodbye. An agent sends unconfirmed ones again.
	idle, cancel := context.WithTimeout(context.Background(), g.cfg.StopGrace/4)
	g.intake.waitIdle(idle)
	cancel()
	g.sessions.forEach(func(s *session) { s.scheduleGoodbye("the server is stopping", reconnectWithin(n)) })
	select {
	case <-g.sessions.empty:
	case <-time.After(g.cfg.StopGrace):
		for _, s := range g.sessions.all() {
			s.end(errStopped)
			s.remove() // now: after Run has returned nothing records the end of a session
		}
	}
}

// reconnectWithin returns a time in which n agents reconnect at about 500 per second.
func reconnectWithin(n int) time.Duration {
	return max(time.Second, time.Duration(n)*2*time.Millisecond)
}
