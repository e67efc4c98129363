package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// FollowChanges calls fn with every batch of changes, of all tenants, that was committed since
// Bootstrap, in order, until ctx ends. When it fails, the follower has to look at everything anew and
// may call it again; changes that are no longer kept are not told then. It fails with ErrRewound when the database
// went back: then nothing that the follower remembers of it counts.
func (s *Service) FollowChanges(ctx context.Context, fn func([]store.Change)) error {
	from := s.feed.since(s.from)
	err := s.store.View(ctx, func(tx store.Tx) error {
		first, err := tx.Changes().First(ctx)
		from = max(from, first-1)
		return err
	})
	if err != nil {
		return err
	}
	follower := s.feed.join("", true, from)
	defer s.feed.leave(follower)
	return s.feed.follow(ctx, follower, func(batch []store.Change) error {
		fn(batch)
		return nil
	})
}

// Follow calls fn with no changes as soon as its position is fixed, then with every batch of changes
// of one tenant after the cursor, in order, until ctx ends or fn fails. A negative cursor starts now.
// It fails with ErrCursorLost when records after the cursor are no longer kept.
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
		if s.feed.doubts(after) || after > last { // of a history that is no more
			return ErrCursorLost
		}
		if after < 0 {
			after = last
		}
		first, err := tx.Changes().First(ctx)
		if err == nil && first > after+1 {
			err = ErrCursorLost
		}
		return err
	})
	if err != nil {
		return err
	}
	follower := s.feed.join(id, false, after)
	defer s.feed.leave(follower)
	if err := fn(nil); err != nil {
		return err
	}
	return s.feed.follow(ctx, follower, fn)
}
