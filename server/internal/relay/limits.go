package relay

import (
	"fmt"
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Limits limits the requests that are open at the same time.
type Limits struct {
	PerCaller, PerAgent, PerTenant, Total int
}

var defaultLimits = Limits{PerCaller: 100, PerAgent: 200, PerTenant: 1000, Total: 4000}

// tooManyError means that a limit is reached.
type tooManyError struct{ message string }

func (e *tooManyError) Error() string { return e.message }

// openRequests counts the open requests. It is safe for concurrent use.
type openRequests struct {
	limits Limits

	mu      sync.Mutex
	total   int
	callers map[string]int
	agents  map[fleet.AgentID]int
	tenants map[fleet.TenantID]int
}

func newOpenRequests(l Limits) *openRequests {
	return &openRequests{limits: l, callers: map[string]int{}, agents: map[fleet.AgentID]int{}, tenants: map[fleet.TenantID]int{}}
}

// anotherServer is the caller of requests that another server forwards. That server limits the requests of each caller.
const anotherServer = "another server"

// take counts one more request. Call release, once, when it ends.
func (r *openRequests) take(caller string, a fleet.Agent) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range []struct {
		open, limit int
		what        string
	}{
		{r.callers[caller], r.limits.PerCaller, "you have"}, {r.agents[a.ID], r.limits.PerAgent, "the cluster of this agent has"},
		{r.tenants[a.TenantID], r.limits.PerTenant, "this tenant has"}, {r.total, r.limits.Total, "the server has"},
	} {
		if l.open >= l.limit {
			return nil, &tooManyError{fmt.Sprintf("%s %d open requests through tunnels, which is the limit: close some, or try again later", l.what, l.limit)}
		}
	}
	r.total++
	if caller != anotherServer {
		r.callers[caller]++
	}
	r.agents[a.ID]++
	r.tenants[a.TenantID]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.total--
		if caller != anotherServer {
			decrement(r.callers, caller)
		}
		decrement(r.agents, a.ID)
		decrement(r.tenants, a.TenantID)
	}, nil
}

func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
