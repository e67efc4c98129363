package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var changeTests = map[string]func(*testing.T, store.Store){
	"are in their transaction and in order": changesAreOrdered,
	"of a failed transaction never were":    changesRollBack,
	"are trimmed from the oldest":           changesTrim,
	"of refs are for servers only":          changesOfRefs,
}

func changesAreOrdered(t *testing.T, s store.Store) {
	same(t, "before the first", last(t, s), 0)
	same(t, "first of none", read(t, s, func(ctx context.Context, tx store.Tx) (int64, error) { return tx.Changes().First(ctx) }), 0)
	w := newWorld(t, s, "a")
	kinds := []store.ChangeKind{
		store.ChangeTenant, store.ChangeTenant, store.ChangeAgent, store.ChangeAgent, store.ChangeConnection, store.ChangeToken, store.ChangeToken,
		store.ChangeEnvironment, store.ChangeEnvironment, store.ChangeAccessRule, store.ChangeCredential, store.ChangeRepository,
		store.ChangeDeployment, store.ChangeDeployment, store.ChangeDesired, store.ChangeStatus,
		store.ChangeRun, store.ChangeRun, store.ChangeOperation, store.ChangeEngineUpgrade, store.ChangeEvent,
	}
	all := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.Change, error) {
		return tx.Changes().After(ctx, w.tenant.ID, 0, 0)
	})
	var got []store.ChangeKind
	for i, c := range all {
		got = append(got, c.Kind)
		if c.At.IsZero() || (i > 0 && c.Seq <= all[i-1].Seq) {
			t.Errorf("change %d: got number %d at %v, want a time and a number above the one before", i, c.Seq, c.At)
		}
	}
	same(t, "kinds", got, kinds)
	newWorld(t, s, "b")
	page := func(tenant fleet.TenantID, after int64, limit int) []store.Change {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]store.Change, error) {
			if tenant == "" {
				return tx.Changes().AfterAllTenants(ctx, after, limit)
			}
			return tx.Changes().After(ctx, tenant, after, limit)
		})
	}
	same(t, "a page of the tenant", page(w.tenant.ID, all[2].Seq, 3), all[3:6])
	same(t, "the end of the tenant", page(w.tenant.ID, all[16].Seq, 100), all[17:])
	guest := page(w.guest.ID, 0, 100)
	same(t, "all tenants", len(page("", 0, 100)), 2*(len(all)+len(guest)))
	same(t, "the start of all tenants", page("", 0, 3), []store.Change{all[0], guest[0], all[1]})
}

func changesRollBack(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	sorry := errors.New("sorry")
	refuse(t, s, sorry, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Events().Append(ctx, w.event); err != nil {
			return err
		}
		inside, err := tx.Changes().Last(ctx)
		if err == nil && inside <= before {
			t.Error("a transaction should see its own changes")
		}
		return errors.Join(err, sorry)
	})
	same(t, "last", last(t, s), before)
}

func changesTrim(t *testing.T, s store.Store) {
	tenant := newTenant(t, s, "a")
	first := func() int64 {
		return read(t, s, func(ctx context.Context, tx store.Tx) (int64, error) { return tx.Changes().First(ctx) })
	}
	trim := func(n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Changes().Trim(ctx, n) })
	}
	appendEvents(t, s, tenant, 10)
	newest := last(t, s)
	trim(20)
	same(t, "first when all are kept, including those of the tenant", first(), newest-10)
	trim(3)
	same(t, "first", first(), newest-2)
	same(t, "last", last(t, s), newest)
	trim(0)
	same(t, "first: the newest stays, so that the end of the log is known", first(), newest)
	same(t, "last", last(t, s), newest)
}

func changesOfRefs(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.Changes().WakeRepository(ctx, w.tenant.ID, w.repo.ID, store.Wake{Reason: store.WakePush, Ref: "refs/heads/main"}),
			tx.Events().Append(ctx, w.event),
			tx.Changes().WakeRepository(ctx, w.tenant.ID, w.repo.ID, store.Wake{Reason: store.WakeRefresh}))
	})
	push := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeWake, ID: string(w.repo.ID), Reason: store.WakePush, Ref: "refs/heads/main"}
	refresh := push
	refresh.Reason, refresh.Ref = store.WakeRefresh, ""
	event := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeEvent}
	same(t, "changes", since(t, s, before), []store.Change{push, event, refresh})
	feed := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.Change, error) {
		return tx.Changes().After(ctx, w.tenant.ID, before, 10)
	})
	if len(feed) != 1 || feed[0].Kind != store.ChangeEvent {
		t.Errorf("feed of the tenant: got %v, want the event only", feed)
	}
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Changes().WakeRepository(ctx, w.tenant.ID, fleet.NewRepositoryID(), store.Wake{Reason: store.WakeRefresh})
	})
}
