package gateway

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Rate is a number per second, with bursts.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Limits are the rate limits of one agent with all its replicas. They are far above the needs of an agent that
// works, and protect the others from one that does not.
type Limits struct {
	// Connects limits the streams that are opened; default 2 per second, bursts of 60.
	Connects Rate
	// Tunnels limits the tunnels that are opened; default 100 per second, bursts of 400.
	Tunnels Rate
	// Fetches limits the requested bundles; default 200 per second, bursts of 2000.
	Fetches Rate
	// Capabilities limits how often an agent sends the capabilities of its cluster; default 1 per second, bursts
	// of 30.
	Capabilities Rate
	// Frames limits all frames except statuses; default 200 per second, bursts of 2000.
	Frames Rate
	// Statuses limits statuses; default 5000 per second, bursts of 10000. The gateway does not reject those
	// beyond the limit: it reads the stream more slowly.
	Statuses Rate
	// InvalidTokens limits the invalid tokens of one address; default 5 per second, bursts of 50. See
	// tokenFailures.
	InvalidTokens Rate
}

func (l Limits) withDefaults() Limits {
	l.Connects = cmp.Or(l.Connects, Rate{2, 60})
	l.Tunnels = cmp.Or(l.Tunnels, Rate{100, 400})
	l.Fetches = cmp.Or(l.Fetches, Rate{200, 2000})
	l.Capabilities = cmp.Or(l.Capabilities, Rate{1, 30})
	l.Frames = cmp.Or(l.Frames, Rate{200, 2000})
	l.Statuses = cmp.Or(l.Statuses, Rate{5000, 10_000})
	l.InvalidTokens = cmp.Or(l.InvalidTokens, Rate{5, 50})
	return l
}

func (r Rate) limiter() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// limiters holds the rate limiters of each agent. All sessions and calls of an agent share them.
type limiters struct {
	limits  Limits
	metrics *metrics

	mu     sync.Mutex
	agents map[fleet.AgentID]*agentLimits
	swept  time.Time
}

// agentLimits are the rate limiters of one agent.
type agentLimits struct {
	metrics                                               *metrics
	connects, fetches, frames, statuses, capabilityFrames *rate.Limiter
	tunnels                                               *rate.Limiter
	used                                                  time.Time
}

// agentLimitsTTL is how long unused limiters stay in memory. After that time all of them would allow a full
// burst.
const agentLimitsTTL = 5 * time.Minute

func newLimiters(l Limits, m *metrics) *limiters {
	return &limiters{limits: l.withDefaults(), metrics: m, agents: map[fleet.AgentID]*agentLimits{}, swept: time.Now()}
}

func (l *limiters) get(agent fleet.AgentID) *agentLimits {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > agentLimitsTTL {
		l.swept = now
		for id, a := range l.agents {
			if now.Sub(a.used) > agentLimitsTTL { // an open session has its own pointer
				delete(l.agents, id)
			}
		}
	}
	a := l.agents[agent]
	if a == nil {
		a = &agentLimits{
			metrics: l.metrics, connects: l.limits.Connects.limiter(), fetches: l.limits.Fetches.limiter(),
			frames: l.limits.Frames.limiter(), statuses: l.limits.Statuses.limiter(), capabilityFrames: l.limits.Capabilities.limiter(), tunnels: l.limits.Tunnels.limiter(),
		}
		l.agents[agent] = a
	}
	a.used = now
	return a
}

func (a *agentLimits) connect() error      { return a.allow(a.connects, "connects") }
func (a *agentLimits) tunnel() error       { return a.allow(a.tunnels, "tunnels") }
func (a *agentLimits) fetch() error        { return a.allow(a.fetches, "fetches") }
func (a *agentLimits) frame() error        { return a.allow(a.frames, "frames") }
func (a *agentLimits) capabilities() error { return a.allow(a.capabilityFrames, "capabilities") }

func (a *agentLimits) allow(l *rate.Limiter, what string) error {
	if l.Allow() {
		return nil
	}
	a.metrics.limited.WithLabelValues(what).Inc()
	return status.Errorf(codes.ResourceExhausted, "too many %s: the limit of this agent is %.0f per second", what, float64(l.Limit()))
}

// status waits until the limit allows one more status.
func (a *agentLimits) status(ctx context.Context) error {
	if a.statuses.Allow() {
		return nil
	}
	a.metrics.limited.WithLabelValues("statuses").Inc()
	return a.statuses.Wait(ctx)
}
