package gitsource

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kedge-dev/kedge/server/internal/fairlimit"
)

const (
	defaultAtOnce = 64
	// defaultMostAtOnce bounds git processes when very many owners have a host that hangs.
	defaultMostAtOnce = 512
	// perHostMinute is how often one host is asked; an owner beyond half of that waits for itself. It is
	// more than hosts of a thousand repositories need, and less than what large ones begin to refuse.
	perHostMinute = 3000
	hostBurst     = 200
	// manyHosts is when it is looked which hosts were left alone long enough to be forgotten.
	manyHosts = 1024
)

// budget is what hosts are asked, by whatever asks them: so many at once, so many in a minute, and not at
// all while one wants to be left alone. Every run of git against a remote passes it (see route). Who has
// its turn waits for no other turn and for no lock, so that turns always come back.
type budget struct {
	limiter *fairlimit.Limiter
	pace    pacer

	mu    sync.Mutex
	quiet map[asker]silence
}

// asker is who asks which host. Hosts count by credential and address, so that what one wants of one
// asker is nothing to another.
type asker struct{ owner, host, reader string }

// silence is that a host wants to be left alone, and what it said.
type silence struct {
	until           time.Time
	problem, detail string
}

func newBudget(atOnce, most int) *budget {
	perHost := max(2, atOnce/4)
	return &budget{
		// Wide: a host that hangs costs a process that sleeps.
		limiter: fairlimit.New(fairlimit.Config{
			Usual: atOnce, Share: atOnce / 4, Most: max(atOnce, most), PerHost: perHost, HostShare: max(1, perHost*3/4),
		}),
		quiet: map[asker]silence{},
	}
}

// turn waits until a host may be asked, and returns how to give the turn back. A host that wants to be
// left alone is not waited for: that is a [*RemoteError] without a URL.
func (b *budget) turn(ctx context.Context, who asker) (end func(), err error) {
	if err := b.silent(who); err != nil {
		return nil, err
	}
	if err := b.pace.wait(ctx, who.owner, who.host); err != nil {
		return nil, err
	}
	release, err := b.limiter.AcquireAt(ctx, who.owner, who.host)
	if err != nil {
		return nil, err
	}
	if err := b.silent(who); err != nil { // since it was waited for
		release()
		return nil, err
	}
	return release, nil
}

func (b *budget) silent(who asker) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.quiet[who]
	if left := time.Until(s.until); left > 0 {
		return &RemoteError{Problem: s.problem, Detail: s.detail, RetryAfter: left}
	}
	return nil
}

// leaveAlone notes what a host said that wants to be left alone.
func (b *budget) leaveAlone(who asker, said *RemoteError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for other, s := range b.quiet {
		if !s.until.After(now) {
			delete(b.quiet, other)
		}
	}
	b.quiet[who] = silence{until: now.Add(said.RetryAfter), problem: said.Problem, detail: said.Detail}
}

// pacer keeps one host from being asked too often, fairly between owners. The zero value is ready.
type pacer struct {
	mu     sync.Mutex
	hosts  map[string]*rate.Limiter
	shares map[asker]*rate.Limiter
}

// wait returns when a host may be asked for an owner.
func (p *pacer) wait(ctx context.Context, owner, host string) error {
	if host == "" {
		return nil
	}
	share, all := p.limiters(asker{owner: owner, host: host})
	if err := share.Wait(ctx); err != nil {
		return err
	}
	return all.Wait(ctx)
}

func (p *pacer) limiters(who asker) (share, all *rate.Limiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts == nil {
		p.hosts, p.shares = map[string]*rate.Limiter{}, map[asker]*rate.Limiter{}
	}
	if len(p.shares) > manyHosts {
		forgetIdle(p.hosts, hostBurst)
		forgetIdle(p.shares, hostBurst/2)
	}
	return limiter(p.shares, who, perHostMinute/2, hostBurst/2), limiter(p.hosts, who.host, perHostMinute, hostBurst)
}

func limiter[K comparable](all map[K]*rate.Limiter, key K, perMinute float64, burst int) *rate.Limiter {
	if all[key] == nil {
		all[key] = rate.NewLimiter(rate.Limit(perMinute/60), burst)
	}
	return all[key]
}

// forgetIdle drops the limiters that would be no different if they were made anew.
func forgetIdle[K comparable](all map[K]*rate.Limiter, burst int) {
	for key, l := range all {
		if l.Tokens() >= float64(burst) {
			delete(all, key)
		}
	}
}
