package changefeed

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ErrCursorLost says that records after the cursor are no longer kept: the follower has to read
// everything again.
var ErrCursorLost = errors.New("the cursor is older than what is kept: read the current state again")

// FollowAll calls fn with every batch of changes, of all tenants, that was committed after the start position, in
// order, until ctx ends. When it fails, the follower has to look at everything again and may call it again;
// changes that are no longer kept are not reported then. It fails with ErrRewound when the database went back: then
// nothing that the follower remembers of it counts.
func (f *Feed) FollowAll(ctx context.Context, fn func([]store.Change)) error {
	from := f.since()
	err := f.store.View(ctx, func(tx store.Tx) error {
		first, err := tx.Changes().First(ctx)
		from = max(from, first-1)
		return err
	})
	if err != nil {
		return err
	}
	follower := f.join("", true, from)
	defer f.leave(follower)
	return f.follow(ctx, follower, func(batch []store.Change) error {
		fn(batch)
		return nil
	})
}

// Resume returns the position of a cursor that a client brings back; a negative one means now. It fails with
// ErrCursorLost when records after the cursor are no longer kept, or when the database has lost its history.
func (f *Feed) Resume(ctx context.Context, tx store.Tx, after int64) (int64, error) {
	last, err := tx.Changes().Last(ctx)
	if err != nil {
		return 0, err
	}
	if f.doubts(after) || after > last { // of a history that is no more
		return 0, ErrCursorLost
	}
	if after < 0 {
		after = last
	}
	first, err := tx.Changes().First(ctx)
	if err == nil && first > after+1 {
		err = ErrCursorLost
	}
	return after, err
}

// FollowTenant calls fn with no changes at once, then with every batch of changes of one tenant after a position of
// Resume, in order, until ctx ends or fn fails.
func (f *Feed) FollowTenant(ctx context.Context, tenant fleet.TenantID, after int64, fn func([]store.Change) error) error {
	follower := f.join(tenant, false, after)
	defer f.leave(follower)
	if err := fn(nil); err != nil {
		return err
	}
	return f.follow(ctx, follower, fn)
}
