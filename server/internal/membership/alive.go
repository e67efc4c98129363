package membership

import (
	"context"
	"sync"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// watched is how many other replicas a replica watches, with one connection to the database each. With more
// replicas than that, some notice a death only by missing beats.
const watched = 4

// aliveLock names the lock that a replica holds for as long as its process lives. Its other locks end with the
// process as well.
func aliveLock(replica string) string { return "replica/" + replica }

// TakeAliveLock takes the lock that the other replicas watch. It is called before they can know of this one.
func (m *Member) TakeAliveLock(ctx context.Context) (err error) {
	if m.cfg.Shared && m.alive == nil {
		m.alive, err = m.AwaitLock(ctx, aliveLock(m.replica.ID))
	}
	return err
}

// holdAlive holds that lock until ctx ends, and takes it again when it was lost.
func (m *Member) holdAlive(ctx context.Context) error {
	if !m.cfg.Shared {
		return nil
	}
	for lock := m.alive; ctx.Err() == nil; {
		if lock == nil {
			var err error
			if lock, err = m.AwaitLock(ctx, aliveLock(m.replica.ID)); err != nil {
				wait.For(ctx, lockRetry)
				continue
			}
		}
		lock = holdUntilLost(ctx, lock)
	}
	return nil
}

// holdUntilLost holds a lock until it is lost, and releases it when ctx ends.
func holdUntilLost(ctx context.Context, lock store.Lock) store.Lock {
	select {
	case <-ctx.Done():
		lock.Release()
	case <-lock.Lost():
	}
	return nil
}

// watchOthers marks a replica as gone as soon as the database has released its lock, until ctx ends. Others lead
// its work at once. The beats are slower and serve as the backstop.
func (m *Member) watchOthers(ctx context.Context) error {
	if !m.cfg.Shared {
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	watching := map[string]context.CancelFunc{}
	for ctx.Err() == nil {
		next, changed := m.replicas.next(watched)
		wanted := map[string]bool{}
		for _, id := range next {
			wanted[id] = true
			if watching[id] == nil {
				own, cancel := context.WithCancel(ctx)
				watching[id] = cancel
				all.Go(func() { m.watchOne(own, id) })
			}
		}
		for id, cancel := range watching {
			if !wanted[id] {
				cancel()
				delete(watching, id)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	for _, cancel := range watching {
		cancel()
	}
	return nil
}

// watchOne returns when a replica is gone or ctx ends.
func (m *Member) watchOne(ctx context.Context, id string) {
	for ctx.Err() == nil {
		err := m.store.AwaitFree(ctx, aliveLock(id))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			m.cfg.Log.Warn("a server replica has released its lock", "server", id)
			m.replicas.markGone(id)
			return
		}
		m.cfg.Log.Warn("watching another server, trying again", "server", id, obs.KeyError, err)
		wait.For(ctx, m.cfg.BeatEvery) // by then it has its lock again, if it was the database that was away
	}
}
