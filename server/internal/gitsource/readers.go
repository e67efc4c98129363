package gitsource

import (
	"container/list"
	"context"
	"sync"
)

// readers bounds how many git cat-file processes are open. Who needs one more takes the place of
// the one that was not used for the longest time, and waits while all are in use. It is safe for
// concurrent use.
type readers struct {
	limit int

	mu      sync.Mutex
	closed  bool
	open    *list.List    // of *catFile, the last used first
	settled chan struct{} // closed, and replaced, when a place may be had; nil while nobody waits
}

func newReaders(limit int) *readers { return &readers{limit: limit, open: list.New()} }

// admit waits for a place for c, whose token the caller holds.
func (p *readers) admit(ctx context.Context, c *catFile) error {
	for {
		victim, settled, err := p.tryAdmit(c)
		switch {
		case err != nil || c.place != nil:
			return err
		case victim != nil:
			victim.stopLocked()
			victim.onIdle()
			<-victim.token
			continue
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryAdmit gives c a place, or returns who must go first, with its token, or else what to wait for.
func (p *readers) tryAdmit(c *catFile) (victim *catFile, settled <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	if p.open.Len() < p.limit {
		c.place = p.open.PushFront(c)
		return nil, nil, nil
	}
	for e := p.open.Back(); e != nil; e = e.Prev() {
		candidate := e.Value.(*catFile)
		select {
		case candidate.token <- struct{}{}:
			return candidate, nil, nil
		default: // in use
		}
	}
	if p.settled == nil {
		p.settled = make(chan struct{})
	}
	return nil, p.settled, nil
}

// leave gives up the place of c, whose token the caller holds.
func (p *readers) leave(c *catFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open.Remove(c.place)
	c.place = nil
	p.wakeLocked()
}

// used notes that c was used just now and is free again.
func (p *readers) used(c *catFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place != nil {
		p.open.MoveToFront(c.place)
	}
	p.wakeLocked()
}

func (p *readers) wakeLocked() {
	if p.settled != nil {
		close(p.settled)
		p.settled = nil
	}
}

// close ends all processes, each after what it is doing, and lets none be started.
func (p *readers) close() {
	p.mu.Lock()
	p.closed = true
	var open []*catFile
	for e := p.open.Front(); e != nil; e = e.Next() {
		open = append(open, e.Value.(*catFile))
	}
	p.wakeLocked()
	p.mu.Unlock()
	for _, c := range open {
		c.close()
	}
}
