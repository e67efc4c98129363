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
	// suspectChecks is how many tokens of addresses over the limit are looked up at once.
	suspectChecks = 2
	// suspectWaiting is how many of them may wait for that. A lookup takes about a millisecond.
	suspectWaiting = 256
	// knownTokens is how many tokens are remembered as valid.
	knownTokens = 1 << 16
	// sweepFailures is how many addresses are remembered before the quiet ones are dropped.
	sweepFailures = 1024
)

// failures limits what an address can cost that presents wrong tokens. Behind a proxy all agents share an
// address, so a limit that refuses an address would keep out agents with valid tokens. An address over the limit loses
// the shared places for token lookups instead: its tokens are looked up in a few places of their own, except those
// that were valid before. It is safe for concurrent use.
type failures struct {
	limit   Rate
	metrics *metrics
	suspect chan struct{}
	waiting chan struct{}

	mu    sync.Mutex
	of    map[string]*rate.Limiter // by address
	sweep int
	known map[string]struct{} // hashes of tokens that were valid
}

func newFailures(limit Rate, m *metrics) *failures {
	return &failures{
		limit: limit, metrics: m, suspect: make(chan struct{}, suspectChecks), waiting: make(chan struct{}, suspectWaiting),
		of: map[string]*rate.Limiter{}, sweep: sweepFailures, known: map[string]struct{}{},
	}
}

// admit waits for a place to look a token up. It fails when the token's address has presented too many wrong
// ones and as many others wait as may.
func (f *failures) admit(ctx context.Context, shared chan struct{}, token string) (release func(), err error) {
	if !f.exceeded(failureKey(remoteAddr(ctx))) || f.isKnown(token) {
		return take(ctx, shared)
	}
	f.metrics.limited.WithLabelValues("token lookups").Inc()
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return nil, status.Error(codes.ResourceExhausted, "too many wrong tokens come from this address: try again later")
	}
	return take(ctx, f.suspect)
}

// valid remembers a token that lets an agent in.
func (f *failures) valid(token string) {
	key := string(auth.Hash(token))
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.known[key]; ok {
		return
	}
	if len(f.known) >= knownTokens {
		for some := range f.known { // any: it is looked up once more
			delete(f.known, some)
			break
		}
	}
	f.known[key] = struct{}{}
}

// wrong counts a token that lets nobody in. It reports whether its address is within the limit.
func (f *failures) wrong(address, token string) bool {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, string(auth.Hash(token)))
	key := failureKey(address)
	limiter := f.of[key]
	if limiter == nil {
		f.sweepLocked(now)
		limiter = f.limit.limiter()
		f.of[key] = limiter
	}
	return limiter.AllowN(now, 1)
}

func (f *failures) exceeded(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limiter := f.of[key]
	return limiter != nil && limiter.Tokens() < 1
}

func (f *failures) isKnown(token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.known[string(auth.Hash(token))]
	return ok
}

// sweepLocked drops addresses whose limit is as good as new, whenever their number has doubled.
func (f *failures) sweepLocked(now time.Time) {
	if len(f.of) < f.sweep {
		return
	}
	for key, limiter := range f.of {
		if limiter.TokensAt(now) >= float64(f.limit.Burst) {
			delete(f.of, key)
		}
	}
	f.sweep = max(sweepFailures, 2*len(f.of))
}

// failureKey is an address without its port. Of IPv6 the network counts: one host has all the addresses of
// one.
func failureKey(address string) string {
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
