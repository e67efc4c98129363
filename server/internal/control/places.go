package control

import (
	"context"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// places bounds what is done at once, fairly between tenants: a tenant whose work hangs or takes long
// holds up nobody else (invariant 12).
//
//   - A tenant that has no place gets one at once, as long as fewer than most are taken.
//   - Beyond its first, a tenant gets at most share, and only while fewer than usual are taken.
//   - Of those who wait, the tenant that has the least comes first, then who has waited longest.
type places struct {
	usual, share, most int

	mu    sync.Mutex
	taken int
	of    map[fleet.TenantID]int
	queue []*waiter // by arrival
}

type waiter struct {
	tenant fleet.TenantID
	ready  chan struct{} // closed when it has its place
}

func newPlaces(usual, share, most int) *places {
	return &places{usual: usual, share: max(1, share), most: max(usual, most), of: map[fleet.TenantID]int{}}
}

// take waits for a place and returns how to give it back.
func (p *places) take(ctx context.Context, tenant fleet.TenantID) (release func(), err error) {
	p.mu.Lock()
	if p.freeLocked(tenant) {
		p.grantLocked(tenant)
		p.mu.Unlock()
		return func() { p.release(tenant) }, nil
	}
	w := &waiter{tenant: tenant, ready: make(chan struct{})}
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return func() { p.release(tenant) }, nil
	case <-ctx.Done():
		p.leave(w)
		return nil, ctx.Err()
	}
}

// freeLocked reports whether the rules give a tenant a place now.
func (p *places) freeLocked(tenant fleet.TenantID) bool {
	has := p.of[tenant]
	return (has == 0 && p.taken < p.most) || (has < p.share && p.taken < p.usual)
}

func (p *places) grantLocked(tenant fleet.TenantID) {
	p.taken++
	p.of[tenant]++
}

func (p *places) release(tenant fleet.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBackLocked(tenant)
}

func (p *places) giveBackLocked(tenant fleet.TenantID) {
	p.taken--
	if p.of[tenant]--; p.of[tenant] == 0 {
		delete(p.of, tenant)
	}
	p.serveLocked()
}

// serveLocked gives free places to those who wait.
func (p *places) serveLocked() {
	for {
		best := -1
		for i, w := range p.queue {
			if p.freeLocked(w.tenant) && (best < 0 || p.of[w.tenant] < p.of[p.queue[best].tenant]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := p.queue[best]
		p.queue = slices.Delete(p.queue, best, best+1)
		p.grantLocked(w.tenant)
		close(w.ready)
	}
}

// leave takes back a wait; a place that came at the same moment goes to the next.
func (p *places) leave(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, w); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		return
	}
	p.giveBackLocked(w.tenant)
}
