package gitsource

import (
	"context"
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// readers limits how many git cat-file processes run. When all slots are in use, a new process replaces the least
// recently used idle one, or waits if none is idle. It is safe for concurrent use.
type readers struct {
	limit int

	mu     sync.Mutex
	closed bool
	open   *simplelru.LRU[*catFile, struct{}] // those that have a slot
	freed  chan struct{}                      // closed and replaced when a slot may be free; nil while nothing waits
}

func newReaders(limit int) *readers {
	// The list has no limit of its own: acquire stops the process that it removes. NewLRU fails only for a size below 1.
	open, _ := simplelru.NewLRU[*catFile, struct{}](math.MaxInt, nil)
	return &readers{limit: limit, open: open}
}

// acquire waits for a slot for c. The caller has locked c.
func (p *readers) acquire(ctx context.Context, c *catFile) error {
	for {
		acquired, evict, freed, err := p.tryAcquire(c)
		switch {
		case err != nil || acquired:
			return err
		case evict != nil:
			evict.stopLocked()
			evict.onIdle()
			<-evict.lock
			continue
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryAcquire gives c a slot. If none is free it locks and returns an idle reader, which the caller must stop. If
// none is idle it returns a channel to wait on.
func (p *readers) tryAcquire(c *catFile) (acquired bool, evict *catFile, freed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, nil, nil, ErrClosed
	}
	if p.open.Len() < p.limit {
		p.open.Add(c, struct{}{})
		return true, nil, nil, nil
	}
	for _, candidate := range p.open.Keys() { // the least recently used first
		select {
		case candidate.lock <- struct{}{}:
			return false, candidate, nil, nil
		default: // in use
		}
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return false, nil, p.freed, nil
}

// release frees the slot of c. The caller has locked c.
func (p *readers) release(c *catFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open.Remove(c)
	p.notifyLocked()
}

// touch makes c the most recently used reader. The caller no longer uses it.
func (p *readers) touch(c *catFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open.Get(c)
	p.notifyLocked()
}

func (p *readers) notifyLocked() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// close stops all processes, each after its current request, and prevents new ones.
func (p *readers) close() {
	p.mu.Lock()
	p.closed = true
	open := p.open.Keys()
	p.notifyLocked()
	p.mu.Unlock()
	for _, c := range open {
		c.close()
	}
}
