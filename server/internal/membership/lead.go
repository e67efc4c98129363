package membership

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// crew is the set of replicas that share the work, as this one sees them.
type crew struct {
	self string

	mu      sync.Mutex
	live    []string
	passed  map[string]int // whom the database told to be gone, and how many beats would belie that
	changed chan struct{}  // closed and replaced when live changes
}

// belied is how many new beats are seen of a replica that is there after all. The first may be from
// before it was gone.
const belied = 2

func newCrew(self string) *crew {
	return &crew{self: self, live: []string{self}, passed: map[string]int{}, changed: make(chan struct{})}
}

// set takes who is live by their beats, and whose beats are new.
func (c *crew) set(live, beaten []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range beaten {
		if c.passed[id]--; c.passed[id] <= 0 {
			delete(c.passed, id)
		}
	}
	for id := range c.passed {
		if !slices.Contains(live, id) {
			delete(c.passed, id)
		}
	}
	c.setLocked(slices.DeleteFunc(live, func(id string) bool { return c.passed[id] > 0 }))
}

// pass takes a replica for gone, until its beats belie it.
func (c *crew) pass(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed[id] = belied
	c.setLocked(slices.DeleteFunc(slices.Clone(c.live), func(other string) bool { return other == id }))
}

func (c *crew) setLocked(live []string) {
	slices.Sort(live)
	if slices.Equal(live, c.live) {
		return
	}
	c.live = live
	close(c.changed)
	c.changed = make(chan struct{})
}

// next returns up to n others, those that come after this replica in the order of their names, and
// a channel that is closed when they may have changed. Everybody is next to n.
func (c *crew) next(n int) ([]string, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, found := slices.BinarySearch(c.live, c.self)
	if found {
		after++
	}
	others := slices.Concat(c.live[after:], c.live[:after])
	others = slices.DeleteFunc(others, func(id string) bool { return id == c.self })
	return others[:min(n, len(others))], c.changed
}

// chosen reports whether this replica is the one for name, and a channel that is closed when that
// may have changed. Every replica that sees the same members chooses the same (rendezvous hashing),
// and one more or one less moves only its own share.
func (c *crew) chosen(name string) (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best string
	var highest uint64
	for _, id := range c.live {
		if score := weigh(id, name); best == "" || score > highest {
			best, highest = id, score
		}
	}
	return best == c.self, c.changed
}

func weigh(id, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id + "\x00" + name)) // never fails
	// FNV's high bits barely depend on the last bytes; this mixes them (the end of murmur3).
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Lead calls run whenever this replica is the one for name and holds its lock, until ctx ends. The
// context of run ends with ctx, when the lock is lost, and when another replica is to take over; run
// returns then. One that returns earlier is called again after a moment.
func (s *Member) Lead(ctx context.Context, name string, run func(ctx context.Context)) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		mine, changed := s.crew.chosen(name)
		if !mine {
			attempt = 0
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		lock, ok, err := s.store.Lock(ctx, name)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("taking over work, trying again", "work", name, obs.KeyError, err)
		}
		if ok {
			s.hold(ctx, name, lock, run)
			attempt = 0
		}
		// Who had it before may still be at it, for as long as it takes to notice.
		pause.For(ctx, lockRetry<<min(attempt, 3))
	}
}

// hold runs for as long as the lock is this replica's and it is still chosen.
func (s *Member) hold(ctx context.Context, name string, lock store.Lock, run func(ctx context.Context)) {
	defer lock.Release()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		defer cancel()
		for {
			mine, changed := s.crew.chosen(name)
			if !mine {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-lock.Lost():
				return
			case <-changed:
			}
		}
	})
	run(ctx)
}

// AwaitLock takes a lock, however long another replica has it.
func (s *Member) AwaitLock(ctx context.Context, name string) (store.Lock, error) {
	for {
		lock, ok, err := s.store.Lock(ctx, name)
		if err != nil || ok {
			return lock, err
		}
		if !pause.For(ctx, lockRetry) {
			return nil, ctx.Err()
		}
	}
}
