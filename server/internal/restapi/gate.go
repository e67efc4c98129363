package restapi

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

// Rate is a rate limit: requests per second, and the burst.
type Rate struct {
	PerSecond float64
	Burst     int
}

// gate enforces rate limits: by token for known callers, by address for others. It is safe for concurrent use.
type gate struct {
	callers  *buckets
	failures *buckets
	now      func() time.Time
}

func newGate(cfg Config) *gate {
	return &gate{callers: newBuckets(cfg.PerCaller), failures: newBuckets(cfg.PerAddress), now: cfg.Now}
}

// caller returns a key for a token without storing it.
func caller(token string) string { return string(auth.Hash(token)) }

// knock returns how long a caller has to wait before its token is checked, if its address has sent too many
// wrong ones. A token that was valid recently is admitted, so that a neighbor behind the same proxy cannot lock
// it out.
func (g *gate) knock(r *http.Request, token string) time.Duration {
	if token != "" && g.callers.known(caller(token)) {
		return 0
	}
	return g.failures.wait(address(r), g.now())
}

// refused counts an invalid token for its address, and removes it from the valid ones.
func (g *gate) refused(r *http.Request, token string) {
	g.failures.take(address(r), g.now())
	if token != "" {
		g.callers.forget(caller(token))
	}
}

// pass returns how long a known caller has to wait. key identifies it.
func (g *gate) pass(key string) time.Duration { return g.callers.take(key, g.now()) }

// address returns the address of a request without its port. For IPv6 it is the network: one host has all
// addresses of one.
func address(r *http.Request) string {
	ip, err := parseHop(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}

// buckets has one token bucket per key. Full ones are removed.
type buckets struct {
	bound Rate

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	sweep int // remove the full ones at this number
}

const firstSweep = 1024

func newBuckets(bound Rate) *buckets {
	return &buckets{bound: bound, of: map[string]*rate.Limiter{}, sweep: firstSweep}
}

// take takes a token from the bucket of key, or returns how long to wait for one.
func (b *buckets) take(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.of[key]
	if limiter == nil {
		b.sweepLocked(now)
		limiter = rate.NewLimiter(rate.Limit(b.bound.PerSecond), b.bound.Burst)
		b.of[key] = limiter
	}
	if limiter.AllowN(now, 1) {
		return 0
	}
	return b.untilOneLocked(limiter, now)
}

// wait returns the result of take without taking.
func (b *buckets) wait(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.of[key]
	if limiter == nil || limiter.TokensAt(now) >= 1 {
		return 0
	}
	return b.untilOneLocked(limiter, now)
}

func (b *buckets) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, key)
}

func (b *buckets) known(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[key] != nil
}

func (b *buckets) untilOneLocked(limiter *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - limiter.TokensAt(now)
	return max(time.Millisecond, time.Duration(missing/b.bound.PerSecond*float64(time.Second)))
}

// sweepLocked removes full buckets, which are equivalent to new ones, whenever their number has doubled: so
// their number is limited by the requests of a few seconds.
func (b *buckets) sweepLocked(now time.Time) {
	if len(b.of) < b.sweep {
		return
	}
	for key, limiter := range b.of {
		if limiter.TokensAt(now) >= float64(b.bound.Burst) {
			delete(b.of, key)
		}
	}
	b.sweep = max(firstSweep, 2*len(b.of))
}
