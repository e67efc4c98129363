package restapi

import "sync"

const (
	// hooksAtOnce limits the webhook bodies in memory: each may have maxHookBody.
	hooksAtOnce = 32
	// hooksPerAddress is the limit of one address. A slow sender holds its own slots for hookTimeout each, and
	// others are not affected. A normal Git host needs a slot for milliseconds.
	hooksPerAddress = 8
)

// hookLimiter counts the webhooks whose body is being read, by address. It is safe for concurrent use.
type hookLimiter struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// take returns a function that releases the slot, or false if the address has none left.
func (p *hookLimiter) take(address string) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == hooksAtOnce || p.of[address] == hooksPerAddress {
		return nil, false
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.all++
	p.of[address]++
	return func() { p.release(address) }, true
}

func (p *hookLimiter) release(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[address]--; p.of[address] == 0 {
		delete(p.of, address)
	}
}
