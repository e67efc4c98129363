package child

import (
	"slices"
	"sync"
	"time"
)

// idleProcesses keeps a few processes for the next build of their owner. It evicts the least recently used one.
type idleProcesses struct {
	most int
	keep time.Duration

	mu     sync.Mutex
	idle   []*resting
	closed bool
	ending sync.WaitGroup // processes that are being killed
}

type resting struct {
	*process
	timer *time.Timer
}

// take returns a process that has served only owner, or no owner yet; nil if there is none.
func (s *idleProcesses) take(owner string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.idle, func(r *resting) bool { return r.owner == owner })
	if i < 0 {
		i = slices.IndexFunc(s.idle, func(r *resting) bool { return r.owner == "" })
	}
	if i < 0 {
		return nil
	}
	r := s.removeLocked(i)
	return r.process
}

// put keeps a process, and ends another one if there are too many.
func (s *idleProcesses) put(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.most <= 0 {
		s.endLocked(p)
		return
	}
	if len(s.idle) >= s.most {
		s.endLocked(s.removeLocked(0).process)
	}
	r := &resting{process: p}
	r.timer = time.AfterFunc(s.keep, func() { s.expire(r) })
	s.idle = append(s.idle, r)
}

func (s *idleProcesses) expire(r *resting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.idle, r); i >= 0 {
		s.endLocked(s.removeLocked(i).process)
	}
}

// close ends all processes and every one that is put later, and waits for their end.
func (s *idleProcesses) close() {
	s.mu.Lock()
	s.closed = true
	for len(s.idle) > 0 {
		s.endLocked(s.removeLocked(0).process)
	}
	s.mu.Unlock()
	s.ending.Wait()
}

func (s *idleProcesses) removeLocked(i int) *resting {
	r := s.idle[i]
	r.timer.Stop()
	s.idle = slices.Delete(s.idle, i, i+1)
	return r
}

func (s *idleProcesses) endLocked(p *process) { s.ending.Go(p.kill) }
