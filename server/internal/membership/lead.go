package membership

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// replicaSet holds the replicas that share the work, as this replica sees them.
type replicaSet struct {
	self string

	mu      sync.Mutex
	live    []string
	gone    map[string]int // replicas whose lock the database reported free, and how many new beats bring each back
	changed chan struct{}  // closed and replaced when live changes
}

// beatsToReturn is how many new beats bring a replica back that was marked as gone. The first one may be from
// before its lock was free.
const beatsToReturn = 2

func newReplicaSet(self string) *replicaSet {
	return &replicaSet{self: self, live: []string{self}, gone: map[string]int{}, changed: make(chan struct{})}
}

// set replaces the live replicas by those with recent beats; beaten are those whose beats are new.
func (c *replicaSet) set(live, beaten []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range beaten {
		if c.gone[id]--; c.gone[id] <= 0 {
			delete(c.gone, id)
		}
	}
	for id := range c.gone {
		if !slices.Contains(live, id) {
			delete(c.gone, id)
		}
	}
	c.setLocked(slices.DeleteFunc(live, func(id string) bool { return c.gone[id] > 0 }))
}

// markGone removes a replica from the live ones until new beats bring it back.
func (c *replicaSet) markGone(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[id] = beatsToReturn
	c.setLocked(slices.DeleteFunc(slices.Clone(c.live), func(other string) bool { return other == id }))
}

func (c *replicaSet) setLocked(live []string) {
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
func (c *replicaSet) next(n int) ([]string, <-chan struct{}) {
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
func (c *replicaSet) chosen(name string) (bool, <-chan struct{}) {
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
func (m *Member) Lead(ctx context.Context, name string, run func(ctx context.Context)) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		mine, changed := m.replicas.chosen(name)
		if !mine {
			attempt = 0
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		lock, ok, err := m.store.Lock(ctx, name)
		if err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("taking over work, trying again", "work", name, obs.KeyError, err)
		}
		if ok {
			m.leadWhile(ctx, name, lock, run)
			attempt = 0
		}
		// The previous leader may still run, until it notices that it lost the lead.
		wait.For(ctx, lockRetry<<min(attempt, 3))
	}
}

// leadWhile calls run for as long as this replica holds the lock and is still chosen.
func (m *Member) leadWhile(ctx context.Context, name string, lock store.Lock, run func(ctx context.Context)) {
	defer lock.Release()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		defer cancel()
		for {
			mine, changed := m.replicas.chosen(name)
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

// AwaitLock waits for a lock that another replica may hold, and takes it.
func (m *Member) AwaitLock(ctx context.Context, name string) (store.Lock, error) {
	for {
		lock, ok, err := m.store.Lock(ctx, name)
		if err != nil || ok {
			return lock, err
		}
		if !wait.For(ctx, lockRetry) {
			return nil, ctx.Err()
		}
	}
}
