package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Errors of following changes; see package changefeed.
var (
	ErrCursorLost = changefeed.ErrCursorLost
	ErrRewound    = changefeed.ErrRewound
)

// FollowChanges calls fn with every batch of changes, of all tenants, that was committed since Bootstrap, in
// order, until ctx ends. See [changefeed.Feed.FollowAll] for its errors.
func (s *Service) FollowChanges(ctx context.Context, fn func([]store.Change)) error {
	return s.feed.FollowAll(ctx, fn)
}

// Follow calls fn with nil as soon as its position is fixed, then with every batch of changes of one tenant
// after the cursor, in order, until ctx ends or fn fails. A negative cursor starts now. It fails with
// ErrCursorLost if records after the cursor are no longer kept.
func (s *Service) Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	var id fleet.TenantID
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		id = t.ID
		after, err = s.feed.Resume(ctx, tx, after)
		return err
	})
	if err != nil {
		return err
	}
	return s.feed.FollowTenant(ctx, id, after, fn)
}
