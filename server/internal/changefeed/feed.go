package changefeed

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// feedBatch bounds how many records are read, and handed over, at once.
	feedBatch = 1000
	// feedRing is about how many of the newest records are kept in memory. A follower that is further
	// behind reads from the store.
	feedRing = 4096
)

// Feed reads the outbox once per process and hands it to every follower in memory, so that many
// followers cost one query per commit.
//
// A follower that nothing in a batch is for is not woken: its cursor is moved along.
type Feed struct {
	store store.Store
	log   *slog.Logger

	mu        sync.Mutex
	start     int64 // where FollowAll begins; see StartAt
	begun     bool
	ring      []store.Change // everything after floor, in order
	floor     int64
	head      int64
	newest    store.Change // the record at head; zero when it was not read
	discarded int64        // the highest number that a database which went back had given; see rewind
	followers map[*follower]struct{}
}

// follower is where one reader of the feed is. Its fields belong to the feed's lock.
type follower struct {
	tenant   fleet.TenantID // whose records it gets, unless everyone's
	everyone bool
	after    int64 // everything up to here has been handed over, or was not for it
	behind   bool  // there may be something after that
	rewound  bool  // what was handed over is no longer in the database
	wake     wait.Signal
}

// New makes a feed over a store; Run reads it. It does no I/O.
func New(st store.Store, log *slog.Logger) *Feed {
	return &Feed{store: st, log: log, followers: map[*follower]struct{}{}}
}

// wants reports whether a record is for the follower. Pushes are for the servers alone.
func (f *follower) wants(c store.Change) bool {
	return f.everyone || (c.TenantID == f.tenant && c.Kind != store.ChangeWake)
}

// StartAt sets the position that Run and FollowAll begin after: what was committed up to there is known. It is
// called before either.
func (f *Feed) StartAt(position int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = position
}

// Run reads from the start position on until ctx ends. It retries what fails: a cursor loses nothing.
func (f *Feed) Run(ctx context.Context) error {
	// Subscribed before the first read: a commit in between wakes the loop.
	wake := f.store.Notify(ctx)
	f.begin()
	for attempt := 0; ctx.Err() == nil; {
		more, err := f.advance(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			f.log.Warn("reading the change feed, trying again", obs.KeyError, err)
			wait.For(ctx, 100*time.Millisecond<<min(attempt, 5))
			attempt++
		case more:
			attempt = 0
		default:
			attempt = 0
			select {
			case <-ctx.Done():
			case <-wake:
			}
		}
	}
	return nil
}

func (f *Feed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.floor, f.head = true, f.start, f.start
	for follower := range f.followers {
		follower.alert()
	}
}

// advance reads one batch; more says that another one may be waiting.
func (f *Feed) advance(ctx context.Context) (more bool, err error) {
	var batch []store.Change
	var first int64
	err = f.store.View(ctx, func(tx store.Tx) (err error) {
		if first, err = tx.Changes().First(ctx); err != nil {
			return err
		}
		// The newest record that was read comes with it: it shows whether this is still the same history.
		batch, err = tx.Changes().AfterAllTenants(ctx, f.head-1, feedBatch)
		return err
	})
	if err != nil {
		return false, err
	}
	more = len(batch) == feedBatch
	if f.rewound(batch, first) {
		return true, f.rewind(ctx)
	}
	if len(batch) > 0 && batch[0].Seq == f.head {
		f.newest, batch = batch[0], batch[1:]
	}
	if len(batch) > 0 {
		f.publish(batch, first)
	}
	return more, nil
}

func (f *Feed) publish(batch []store.Change, first int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := first > f.head+1 // records were trimmed before this server read them
	if lost {
		f.ring, f.floor = nil, first-1
	}
	f.ring = append(f.ring, batch...)
	f.newest = batch[len(batch)-1]
	f.head = f.newest.Seq
	if extra := len(f.ring) - feedRing; extra > feedBatch { // not at every batch: this copies
		f.floor = f.ring[extra-1].Seq
		f.ring = append(make([]store.Change, 0, feedRing+2*feedBatch), f.ring[extra:]...)
	}
	for follower := range f.followers {
		switch {
		case follower.behind:
		case lost || follower.wantsAny(batch):
			follower.alert()
		default:
			follower.after = max(follower.after, f.head) // it may have begun ahead of us
		}
	}
}

func (f *follower) wantsAny(batch []store.Change) bool {
	for _, c := range batch {
		if f.wants(c) {
			return true
		}
	}
	return false
}

// alert marks the follower as behind. The caller holds the feed's lock.
func (f *follower) alert() {
	f.behind = true
	f.wake.Set()
}

// join adds a follower that has everything up to after.
func (f *Feed) join(tenant fleet.TenantID, everyone bool, after int64) *follower {
	fol := &follower{tenant: tenant, everyone: everyone, after: after, wake: wait.NewSignal()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers[fol] = struct{}{}
	fol.alert()
	return fol
}

func (f *Feed) leave(fol *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers, fol)
}

// follow hands everything after a position to fn, in order, until ctx ends or fn fails.
func (f *Feed) follow(ctx context.Context, fol *follower, fn func([]store.Change) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-fol.wake:
		}
		for {
			batch, done, err := f.next(ctx, fol)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if len(batch) > 0 {
				if err := fn(batch); err != nil {
					return err
				}
			}
			if done {
				break
			}
		}
	}
}

// next returns what comes next for a follower, from memory or else from the store; done says that it
// is not behind any more.
func (f *Feed) next(ctx context.Context, fol *follower) (batch []store.Change, done bool, err error) {
	batch, floor, done, ok := f.fromRing(fol)
	if !ok {
		batch, done, err = f.fromStore(ctx, fol, floor)
	}
	if f.isRewound(fol) { // also one that has read from the store meanwhile
		return nil, false, ErrRewound
	}
	return batch, done, err
}

func (f *Feed) fromRing(fol *follower) (batch []store.Change, floor int64, done, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun || fol.rewound {
		fol.behind = false // begin alerts it
		return nil, 0, true, true
	}
	if fol.after < f.floor {
		return nil, f.floor, false, false
	}
	start := sort.Search(len(f.ring), func(i int) bool { return f.ring[i].Seq > fol.after })
	for _, c := range f.ring[start:] {
		if fol.wants(c) {
			if len(batch) == feedBatch {
				return batch, 0, false, true
			}
			batch = append(batch, c)
		}
		fol.after = c.Seq
	}
	fol.behind = false
	return batch, 0, true, true
}

// fromStore reads for a follower that is further behind than what is kept in memory. floor was the end of
// that before the read, so a short answer means that nothing up to floor is left.
func (f *Feed) fromStore(ctx context.Context, fol *follower, floor int64) ([]store.Change, bool, error) {
	var batch []store.Change
	err := f.store.View(ctx, func(tx store.Tx) error {
		first, err := tx.Changes().First(ctx)
		if err != nil {
			return err
		}
		if first > fol.after+1 {
			return ErrCursorLost
		}
		if fol.everyone {
			batch, err = tx.Changes().AfterAllTenants(ctx, fol.after, feedBatch)
		} else {
			batch, err = tx.Changes().After(ctx, fol.tenant, fol.after, feedBatch)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(batch) > 0 {
		fol.after = batch[len(batch)-1].Seq
	}
	if len(batch) < feedBatch {
		fol.after = max(fol.after, floor)
	}
	return batch, false, nil
}
