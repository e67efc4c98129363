package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/server/internal/auth"
)

const (
	// limitedLookups limits the concurrent token lookups of addresses over the limit.
	limitedLookups = 2
	// limitedQueue limits how many of them wait. A lookup takes about a millisecond.
	limitedQueue = 256
	// maxValidTokens limits the tokens that are remembered as valid.
	maxValidTokens = 1 << 16
	// sweepThreshold is the number of addresses above which those without recent failures are removed.
	sweepThreshold = 1024
)

// tokenFailures limits the cost of an address that presents invalid tokens. Behind a proxy all agents share an
// address, so rejecting the address would lock out agents with valid tokens. Instead, an address over the limit
// loses the shared slots: its tokens are looked up in a few separate slots, except tokens that were valid before.
// It is safe for concurrent use.
type tokenFailures struct {
	limit   Rate
	metrics *metrics
	lookups chan struct{}
	queue   chan struct{}

	mu       sync.Mutex
	limiters map[string]*rate.Limiter // by addressKey
	sweepAt  int
	valid    map[string]struct{} // hashes of tokens that were valid at their last lookup
}

func newTokenFailures(limit Rate, m *metrics) *tokenFailures {
	return &tokenFailures{
		limit: limit, metrics: m, lookups: make(chan struct{}, limitedLookups), queue: make(chan struct{}, limitedQueue),
		limiters: map[string]*rate.Limiter{}, sweepAt: sweepThreshold, valid: map[string]struct{}{},
	}
}

// acquire waits for a slot to look up a token. It fails if the address of the token is over the limit and the
// queue of such addresses is full.
func (f *tokenFailures) acquire(ctx context.Context, shared chan struct{}, token string) (release func(), err error) {
	if !f.exceeded(addressKey(remoteAddr(ctx))) || f.wasValid(token) {
		return acquire(ctx, shared)
	}
	f.metrics.limited.WithLabelValues("token lookups").Inc()
	select {
	case f.queue <- struct{}{}:
		defer func() { <-f.queue }()
	default:
		return nil, status.Error(codes.ResourceExhausted, "too many invalid tokens from this address: try again later")
	}
	return acquire(ctx, f.lookups)
}

// addValid remembers a valid token.
func (f *tokenFailures) addValid(token string) {
	key := string(auth.Hash(token))
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.valid[key]; ok {
		return
	}
	if len(f.valid) >= maxValidTokens {
		for evicted := range f.valid { // any one: a lookup adds it again
			delete(f.valid, evicted)
			break
		}
	}
	f.valid[key] = struct{}{}
}

// addInvalid counts an invalid token. It reports whether its address is within the limit.
func (f *tokenFailures) addInvalid(address, token string) bool {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.valid, string(auth.Hash(token)))
	key := addressKey(address)
	limiter := f.limiters[key]
	if limiter == nil {
		f.sweepLocked(now)
		limiter = f.limit.limiter()
		f.limiters[key] = limiter
	}
	return limiter.AllowN(now, 1)
}

func (f *tokenFailures) exceeded(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limiter := f.limiters[key]
	return limiter != nil && limiter.Tokens() < 1
}

func (f *tokenFailures) wasValid(token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.valid[string(auth.Hash(token))]
	return ok
}

// sweepLocked removes the addresses that have their full limit again, whenever the number of addresses has
// doubled.
func (f *tokenFailures) sweepLocked(now time.Time) {
	if len(f.limiters) < f.sweepAt {
		return
	}
	for key, limiter := range f.limiters {
		if limiter.TokensAt(now) >= float64(f.limit.Burst) {
			delete(f.limiters, key)
		}
	}
	f.sweepAt = max(sweepThreshold, 2*len(f.limiters))
}

// addressKey returns an address without its port. For IPv6 it returns the /64 network, because one host has all
// addresses of its network.
func addressKey(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}
