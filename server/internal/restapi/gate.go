package restapi

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

// Rate is how many requests there may be: so many a second in the long run, so many at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// gate bounds how much callers can ask for. Callers that are known are bounded by their token, others
// by their address. It is safe for concurrent use.
type gate struct {
	callers  *buckets
	failures *buckets
	now      func() time.Time
}

func newGate(cfg Config) *gate {
	return &gate{callers: newBuckets(cfg.PerCaller), failures: newBuckets(cfg.PerAddress), now: cfg.Now}
}

// caller names a token without keeping it.
func caller(token string) string { return string(auth.Hash(token)) }

// knock says how long a caller has to wait before its token is looked at: while its address has
// presented too many wrong ones. A token that was good a moment ago is let through, so that somebody
// behind the same proxy cannot lock others out.
func (g *gate) knock(r *http.Request, token string) time.Duration {
	if token != "" && g.callers.known(caller(token)) {
		return 0
	}
	return g.failures.wait(address(r), g.now())
}

// refused counts a token that was not good against its address, and forgets that it may have been good
// before.
func (g *gate) refused(r *http.Request, token string) {
	g.failures.take(address(r), g.now())
	if token != "" {
		g.callers.forget(caller(token))
	}
}

// pass says how long a caller that is known has to wait.
func (g *gate) pass(token string) time.Duration { return g.callers.take(caller(token), g.now()) }

// address is where a request comes from, without its port. Of IPv6 the network counts: one host has
// all the addresses of one.
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

// buckets is one token bucket per key. Those that are full again are forgotten.
type buckets struct {
	bound Rate

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	sweep int // forget the full ones when there are this many
}

const firstSweep = 1024

func newBuckets(bound Rate) *buckets {
	return &buckets{bound: bound, of: map[string]*rate.Limiter{}, sweep: firstSweep}
}

// take takes one from the bucket of key, or says how long to wait until there is one.
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

// wait is what take would say, without taking.
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

// sweepLocked forgets the buckets that are full, which are as good as new, whenever their number has
// doubled: so what is kept is bounded by what comes in within seconds.
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
