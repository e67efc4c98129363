package changefeed

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ErrRewound says that the database has lost changes that were committed, as after a fail-over to a standby
// that had not received them. Whatever was read from it may be no longer true. It is an ErrCursorLost.
var ErrRewound = fmt.Errorf("the database went back to an earlier state: %w", ErrCursorLost)

// rewound reports whether the newest record that was read is no longer in the database, although older ones
// are kept. To look for a lower number alone would miss a database that has given the same numbers again.
// batch is what the database holds from that record on.
func (f *Feed) rewound(batch []store.Change, first int64) bool {
	if f.newest.Seq == 0 || first > f.head { // nothing was read, or it was trimmed
		return false
	}
	return len(batch) == 0 || !sameRecord(batch[0], f.newest)
}

func sameRecord(a, b store.Change) bool {
	return a.Seq == b.Seq && a.TenantID == b.TenantID && a.Kind == b.Kind && a.ID == b.ID && a.AgentID == b.AgentID &&
		a.DeploymentID == b.DeploymentID && a.Ref == b.Ref && a.At.Equal(b.At)
}

// rewind goes on from where the database is now, and tells every follower to look at everything.
func (f *Feed) rewind(ctx context.Context) error {
	var last int64
	var newest []store.Change
	err := f.store.View(ctx, func(tx store.Tx) (err error) {
		if last, err = tx.Changes().Last(ctx); err != nil {
			return err
		}
		newest, err = tx.Changes().AfterAllTenants(ctx, last-1, 1)
		return err
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Error("the database has lost changes that were committed: looking at everything again", "had", f.head, "has", last,
		obs.KeyReason, "DatabaseRewound")
	f.discarded = max(f.discarded, f.head)
	f.ring, f.floor, f.head, f.newest = nil, last, last, store.Change{}
	if len(newest) > 0 {
		f.newest = newest[0]
	}
	for follower := range f.followers {
		follower.rewound = true
		follower.alert()
	}
	return nil
}

func (f *Feed) isRewound(fol *follower) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fol.rewound
}

// doubts reports whether a cursor may be of a history that the database has lost: the same numbers stand for other
// records by now.
func (f *Feed) doubts(cursor int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cursor > 0 && cursor <= f.discarded
}

// since is where a follower of everything begins.
func (f *Feed) since() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.discarded > 0 {
		return 0 // with all that is kept: the meaning of the start position is not known
	}
	return f.start
}
