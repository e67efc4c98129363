package gitsource

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kedge-dev/kedge/server/internal/fairlimit"
)

const (
	defaultConcurrency = 64
	// defaultMaxConcurrency limits the git processes when many owners use hosts that do not respond.
	defaultMaxConcurrency = 512
	// perHostMinute limits the requests to one host. An owner above half of it waits longer than the others. It
	// is more than a host with a thousand repositories needs, and less than the rate that large hosts reject.
	perHostMinute = 3000
	hostBurst     = 200
	// sweepThreshold is the number of limiters above which unused ones are removed.
	sweepThreshold = 1024
)

// budget limits the requests to hosts: how many run concurrently, how many start per minute, and none while a
// host asks clients to wait. Every run of git against a remote uses it (see route). A caller with a slot never
// waits for another slot or a lock, so that it always releases its slot.
type budget struct {
	limiter *fairlimit.Limiter
	pace    hostRates

	mu       sync.Mutex
	backoffs map[requester]hostBackoff
}

// requester is an owner that sends requests to a host with a credential. Hosts count requests by credential and
// address, so the back-off of one requester does not affect another.
type requester struct{ owner, host, reader string }

// hostBackoff is the request of a host to wait, with its message.
type hostBackoff struct {
	until           time.Time
	problem, detail string
}

func newBudget(atOnce, most int) *budget {
	perHost := max(2, atOnce/4)
	return &budget{
		// The limit is high, because a host that does not respond costs only a sleeping process.
		limiter: fairlimit.New(fairlimit.Config{
			Usual: atOnce, Share: atOnce / 4, Most: max(atOnce, most), PerHost: perHost, HostShare: max(1, perHost*3/4),
		}),
		backoffs: map[requester]hostBackoff{},
	}
}

// acquire waits until a request may be sent to a host and returns a function that ends the request. It does not
// wait for a host that asks clients to wait: then it returns a [*RemoteError] without a URL.
func (b *budget) acquire(ctx context.Context, from requester) (end func(), err error) {
	if err := b.checkBackoff(from); err != nil {
		return nil, err
	}
	if err := b.pace.wait(ctx, from.owner, from.host); err != nil {
		return nil, err
	}
	release, err := b.limiter.AcquireAt(ctx, from.owner, from.host)
	if err != nil {
		return nil, err
	}
	if err := b.checkBackoff(from); err != nil { // the host may have asked to wait in the meantime
		release()
		return nil, err
	}
	return release, nil
}

func (b *budget) checkBackoff(from requester) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.backoffs[from]
	if left := time.Until(s.until); left > 0 {
		return &RemoteError{Problem: s.problem, Detail: s.detail, RetryAfter: left}
	}
	return nil
}

// backOff records that a host asks this requester to wait.
func (b *budget) backOff(from requester, problem *RemoteError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for other, s := range b.backoffs {
		if !s.until.After(now) {
			delete(b.backoffs, other)
		}
	}
	b.backoffs[from] = hostBackoff{until: now.Add(problem.RetryAfter), problem: problem.Problem, detail: problem.Detail}
}

// hostRates limits the request rate of each host, fairly between owners. The zero value is ready to use.
type hostRates struct {
	mu     sync.Mutex
	hosts  map[string]*rate.Limiter
	shares map[requester]*rate.Limiter
}

// wait waits until an owner may send a request to a host.
func (p *hostRates) wait(ctx context.Context, owner, host string) error {
	if host == "" {
		return nil
	}
	share, all := p.limiters(requester{owner: owner, host: host})
	if err := share.Wait(ctx); err != nil {
		return err
	}
	return all.Wait(ctx)
}

func (p *hostRates) limiters(from requester) (share, all *rate.Limiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts == nil {
		p.hosts, p.shares = map[string]*rate.Limiter{}, map[requester]*rate.Limiter{}
	}
	if len(p.shares) > sweepThreshold {
		removeIdle(p.hosts, hostBurst)
		removeIdle(p.shares, hostBurst/2)
	}
	return limiter(p.shares, from, perHostMinute/2, hostBurst/2), limiter(p.hosts, from.host, perHostMinute, hostBurst)
}

func limiter[K comparable](all map[K]*rate.Limiter, key K, perMinute float64, burst int) *rate.Limiter {
	if all[key] == nil {
		all[key] = rate.NewLimiter(rate.Limit(perMinute/60), burst)
	}
	return all[key]
}

// removeIdle removes the limiters that are in the same state as new ones.
func removeIdle[K comparable](all map[K]*rate.Limiter, burst int) {
	for key, l := range all {
		if l.Tokens() >= float64(burst) {
			delete(all, key)
		}
	}
}
