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

// Rate is so many per second, and so many at once after a quiet time.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Limits bound what one agent, with all its replicas, may ask of this server. They are far above what
// an agent does that works: they keep one that does not from being everybody's problem.
type Limits struct {
	// Connects are streams that are opened; default 2 per second, 60 at once.
	Connects Rate
	// Fetches are bundles that are asked for; default 200 per second, 2000 at once.
	Fetches Rate
	// Capabilities are what a cluster offers to charts, told again; default 1 per second, 30 at once.
	Capabilities Rate
	// Frames are all but statuses; default 200 per second, 2000 at once.
	Frames Rate
	// Statuses beyond the limit are not refused: the stream is read more slowly. Default 5000 per
	// second, 10000 at once.
	Statuses Rate
	// WrongTokens are tokens of one address that let nobody in; default 5 per second, 50 at once. See
	// failures.
	WrongTokens Rate
}

func (l Limits) withDefaults() Limits {
	l.Connects = cmp.Or(l.Connects, Rate{2, 60})
	l.Fetches = cmp.Or(l.Fetches, Rate{200, 2000})
	l.Capabilities = cmp.Or(l.Capabilities, Rate{1, 30})
	l.Frames = cmp.Or(l.Frames, Rate{200, 2000})
	l.Statuses = cmp.Or(l.Statuses, Rate{5000, 10_000})
	l.WrongTokens = cmp.Or(l.WrongTokens, Rate{5, 50})
	return l
}

func (r Rate) limiter() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// limiters holds what each agent has left. Sessions and calls of one agent share it.
type limiters struct {
	limits  Limits
	metrics *metrics

	mu     sync.Mutex
	agents map[fleet.AgentID]*allowance
	swept  time.Time
}

// allowance is what one agent has left.
type allowance struct {
	metrics                                      *metrics
	connects, fetches, frames, statuses, offered *rate.Limiter
	used                                         time.Time
}

// idleAllowance is how long an unused allowance is kept: by then every one is full again.
const idleAllowance = 5 * time.Minute

func newLimiters(l Limits, m *metrics) *limiters {
	return &limiters{limits: l.withDefaults(), metrics: m, agents: map[fleet.AgentID]*allowance{}, swept: time.Now()}
}

func (l *limiters) of(agent fleet.AgentID) *allowance {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > idleAllowance {
		l.swept = now
		for id, a := range l.agents {
			if now.Sub(a.used) > idleAllowance { // a session that lives on keeps its own pointer
				delete(l.agents, id)
			}
		}
	}
	a := l.agents[agent]
	if a == nil {
		a = &allowance{
			metrics: l.metrics, connects: l.limits.Connects.limiter(), fetches: l.limits.Fetches.limiter(),
			frames: l.limits.Frames.limiter(), statuses: l.limits.Statuses.limiter(), offered: l.limits.Capabilities.limiter(),
		}
		l.agents[agent] = a
	}
	a.used = now
	return a
}

func (a *allowance) connect() error      { return a.allow(a.connects, "connects") }
func (a *allowance) fetch() error        { return a.allow(a.fetches, "fetches") }
func (a *allowance) frame() error        { return a.allow(a.frames, "frames") }
func (a *allowance) capabilities() error { return a.allow(a.offered, "capabilities") }

func (a *allowance) allow(l *rate.Limiter, what string) error {
	if l.Allow() {
		return nil
	}
	a.metrics.limited.WithLabelValues(what).Inc()
	return status.Errorf(codes.ResourceExhausted, "too many %s: this agent may have %.0f per second", what, float64(l.Limit()))
}

// status waits until one more status may be taken.
func (a *allowance) status(ctx context.Context) error {
	if a.statuses.Allow() {
		return nil
	}
	a.metrics.limited.WithLabelValues("statuses").Inc()
	return a.statuses.Wait(ctx)
}
