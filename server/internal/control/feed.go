package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ErrCursorLost says that records after the cursor are no longer kept: the follower has to read
// everything anew.
var ErrCursorLost = errors.New("the cursor is older than what is kept: read the current state anew")

// feedBatch bounds how many records are held in memory per follower.
const feedBatch = 1000

// FollowChanges calls fn with every batch of changes, of all tenants, that was committed since
// Bootstrap, in order, until ctx ends. When it fails, the follower has to look at everything anew and
// may call it again; changes that are no longer kept are not told then.
func (s *Service) FollowChanges(ctx context.Context, fn func([]store.Change)) error {
	from := s.from
	err := s.store.View(ctx, func(tx store.Tx) error {
		first, err := tx.Changes().First(ctx)
		from = max(from, first-1)
		return err
	})
	if err != nil {
		return err
	}
	return s.follow(ctx, from, func(tx store.Tx, after int64) ([]store.Change, error) {
		return tx.Changes().AfterAllTenants(ctx, after, feedBatch)
	}, func(batch []store.Change) error {
		fn(batch)
		return nil
	})
}

// Follow calls fn with no changes as soon as its position is fixed, then with every batch of changes
// of one tenant after the cursor, in order, until ctx ends or fn fails. A negative cursor starts now.
func (s *Service) Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	var id fleet.TenantID
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		id = t.ID
		last, err := tx.Changes().Last(ctx)
		if err != nil {
			return err
		}
		if after < 0 {
			after = last
		}
		if after > last { // of a database that is no more
			return ErrCursorLost
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := fn(nil); err != nil {
		return err
	}
	return s.follow(ctx, after, func(tx store.Tx, after int64) ([]store.Change, error) {
		return tx.Changes().After(ctx, id, after, feedBatch)
	}, fn)
}

func (s *Service) follow(
	ctx context.Context, after int64,
	read func(tx store.Tx, after int64) ([]store.Change, error), fn func([]store.Change) error,
) error {
	// Subscribed before the first read: a commit in between wakes the loop.
	wake := s.store.Notify(ctx)
	for {
		var batch []store.Change
		err := s.store.View(ctx, func(tx store.Tx) error {
			first, err := tx.Changes().First(ctx)
			if err != nil {
				return err
			}
			if first > after+1 {
				return ErrCursorLost
			}
			batch, err = read(tx, after)
			return err
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			after = batch[len(batch)-1].Seq
			if err := fn(batch); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}
