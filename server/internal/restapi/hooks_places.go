package restapi

import "sync"

const (
	// hooksAtOnce bounds what strangers can make the server hold: each may be maxHookBody.
	hooksAtOnce = 32
	// hooksPerAddress is how many of them one address may have. Who sends slowly holds its own for
	// hookTimeout each, and others get in. A Git host that sends in time needs a place for milliseconds.
	hooksPerAddress = 8
)

// hookPlaces counts the webhooks whose body is being read, by the address that they come from. It is safe
// for concurrent use.
type hookPlaces struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// take returns how to give a place back, or false when there is none for this address.
func (p *hookPlaces) take(address string) (release func(), ok bool) {
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

func (p *hookPlaces) release(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[address]--; p.of[address] == 0 {
		delete(p.of, address)
	}
}
