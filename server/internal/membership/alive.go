package membership

import (
	"context"
	"sync"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// watched is how many others a replica watches, with a connection to the database each. Of more
// replicas than that and one, some hear of a death only by the beats that are missing.
const watched = 4

// lifeOf names the lock that a replica holds for as long as its process, and so every other lock of it,
// lives.
func lifeOf(replica string) string { return "replica/" + replica }

// ShowAlive takes the lock that the others watch, before they can know of this replica.
func (s *Member) ShowAlive(ctx context.Context) (err error) {
	if s.cfg.Shared && s.alive == nil {
		s.alive, err = s.AwaitLock(ctx, lifeOf(s.replica.ID))
	}
	return err
}

// vouch holds that lock until ctx ends, and takes it anew when it was lost.
func (s *Member) vouch(ctx context.Context) error {
	if !s.cfg.Shared {
		return nil
	}
	for lock := s.alive; ctx.Err() == nil; {
		if lock == nil {
			var err error
			if lock, err = s.AwaitLock(ctx, lifeOf(s.replica.ID)); err != nil {
				pause.For(ctx, lockRetry)
				continue
			}
		}
		lock = stay(ctx, lock)
	}
	return nil
}

// stay holds a lock until it is lost, and gives it back when ctx ends.
func stay(ctx context.Context, lock store.Lock) store.Lock {
	select {
	case <-ctx.Done():
		lock.Release()
	case <-lock.Lost():
	}
	return nil
}

// watchOthers passes a replica over as soon as the database has noticed that it is gone, until ctx
// ends. What it led is led by others then, at once: the beats, which are slower, are the backstop.
func (s *Member) watchOthers(ctx context.Context) error {
	if !s.cfg.Shared {
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	watching := map[string]context.CancelFunc{}
	for ctx.Err() == nil {
		next, changed := s.crew.next(watched)
		wanted := map[string]bool{}
		for _, id := range next {
			wanted[id] = true
			if watching[id] == nil {
				own, cancel := context.WithCancel(ctx)
				watching[id] = cancel
				all.Go(func() { s.watchOne(own, id) })
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

// watchOne returns when a replica is gone, or ctx ends.
func (s *Member) watchOne(ctx context.Context, id string) {
	for ctx.Err() == nil {
		err := s.store.AwaitFree(ctx, lifeOf(id))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			s.cfg.Log.Warn("a server replica has let go of its work", "server", id)
			s.crew.pass(id)
			return
		}
		s.cfg.Log.Warn("watching another server, trying again", "server", id, obs.KeyError, err)
		pause.For(ctx, s.cfg.BeatEvery) // by then it has its lock again, if it was the database that was away
	}
}
