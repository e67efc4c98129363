package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// patience limits a wait for something that happens immediately.
const patience = 10 * time.Second

func event(tenant fleet.TenantID, reason string) fleet.Event {
	return fleet.Event{At: time.Now(), TenantID: tenant, Type: fleet.EventNormal, Reason: fleet.Reason(reason)}
}

// after returns what a cursor at seq has not seen: numbers of changes, and of events.
func after(t *testing.T, s store.Store, tenant fleet.TenantID, seq, event int64) (changes, events []int64) {
	t.Helper()
	err := s.View(t.Context(), func(tx store.Tx) error {
		all, err := tx.Changes().AfterAllTenants(t.Context(), seq, 1000)
		for _, c := range all {
			changes = append(changes, c.Seq)
		}
		if err != nil {
			return err
		}
		told, err := tx.Events().List(t.Context(), tenant, store.EventFilter{AfterSeq: event, Limit: 1000})
		for _, e := range told {
			events = append(events, e.Seq)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return changes, events
}

func lastSeq(t *testing.T, s store.Store) (seq int64) {
	t.Helper()
	err := s.View(t.Context(), func(tx store.Tx) (err error) {
		seq, err = tx.Changes().Last(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// waiters counts the transactions of a database that wait for a lock.
func waiters(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// TestALowerNumberIsNeverSeenLater lets one transaction take its numbers, and another one try to overtake it.
// covers: invariant 10
func TestALowerNumberIsNeverSeenLater(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s, conn := pgtest.Open(t, d), admin(t, d)
	tenant, _ := newTenant(t, s, "a")
	cursor := lastSeq(t, s)
	overtaking := make(chan error, 1)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Events().Append(ctx, event(tenant, "first")); err != nil {
			return err
		}
		if seq, err := tx.Changes().Last(ctx); err != nil || seq <= cursor { // takes the number
			t.Errorf("inside: got number %d and error %v, want one above %d", seq, err, cursor)
		}
		go func() {
			overtaking <- s.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, event(tenant, "second")) })
		}()
		testkit.Eventually(t, patience, func(context.Context) error {
			if waiters(t, conn) == 0 && len(overtaking) == 0 {
				return fmt.Errorf("the second transaction neither waits nor is done")
			}
			return nil
		})
		if got := lastSeq(t, s); got != cursor {
			t.Errorf("a cursor before the commit: got %d, want %d", got, cursor)
		}
		if changes, events := after(t, s, tenant, cursor, 0); len(changes)+len(events) > 0 {
			t.Errorf("before the commit a reader sees changes %v and events %v, want none: lower ones are still to come", changes, events)
		}
		return nil
	})
	if err := <-overtaking; err != nil {
		t.Fatal(err)
	}
	changes, events := after(t, s, tenant, cursor, 0)
	if len(changes) != 2 || !slices.IsSorted(changes) || len(events) != 2 || !slices.IsSorted(events) {
		t.Errorf("afterwards: got changes %v and events %v, want two each, in order", changes, events)
	}
}

// TestAnIdleTransactionHoldsNobodyUp: only a transaction that has taken numbers blocks others.
func TestAnIdleTransactionHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	tenant, agent := newTenant(t, s, "a")
	before := lastSeq(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.Agents().Get(ctx, tenant, agent); err != nil {
			return err
		}
		if err := tx.Events().Append(ctx, event(tenant, "late")); err != nil {
			return err
		}
		err := s.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, event(tenant, "early")) })
		if got := lastSeq(t, s); got != before+1 {
			t.Errorf("what was committed meanwhile: got last number %d, want %d", got, before+1)
		}
		return err
	})
}

// TestASecondTryKeepsOthersOut: a transaction that lost once is not overtaken again, or it might lose forever.
func TestASecondTryKeepsOthersOut(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s, conn := pgtest.Open(t, d), admin(t, d)
	tenant, _ := newTenant(t, s, "a")
	create := func(ctx context.Context, tx store.Tx, name string) error {
		return tx.Environments().Create(ctx, fleet.Environment{
			ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: name, CreatedAt: time.Now()})
	}
	tries := 0
	rival := make(chan error, 1)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		tries++
		if _, err := tx.Environments().List(ctx, tenant, store.Page{}); err != nil {
			return err
		}
		compete := func() error {
			return s.Update(ctx, func(tx store.Tx) error { return create(ctx, tx, fmt.Sprintf("rival-%d", tries)) })
		}
		switch tries {
		case 1:
			if err := compete(); err != nil {
				t.Errorf("the rival of the first try: %v", err)
			}
		case 2:
			go func() { rival <- compete() }()
			testkit.Eventually(t, patience, func(context.Context) error {
				if waiters(t, conn) == 0 && len(rival) == 0 {
					return fmt.Errorf("the other transaction neither waits nor is done")
				}
				return nil
			})
		}
		return create(ctx, tx, "own")
	})
	if err := <-rival; err != nil {
		t.Errorf("the rival of the second try: %v", err)
	}
	if tries != 2 {
		t.Errorf("got %d tries, want 2", tries)
	}
}

// TestStatusesDisturbNoDecision: a change of many targets would never end if it needed exclusive access to
// their rows.
func TestStatusesDisturbNoDecision(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	f := newBed(t, s, 1, 3)
	tries := 0
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		tries++
		if _, err := tx.Targets().OfDeployment(ctx, f.tenant, f.targets[0].DeploymentID); err != nil {
			return err
		}
		err := s.Update(ctx, func(tx store.Tx) error { return f.report(ctx, tx, f.targets, 1) })
		if err != nil {
			return err
		}
		for _, x := range f.targets {
			if err := tx.Targets().SetDesired(ctx, f.tenant, x.ID, fleet.Desired{Version: fleet.Version{Generation: 7}}); err != nil {
				return err
			}
		}
		return nil
	})
	if tries != 1 {
		t.Errorf("got %d tries, want 1", tries)
	}
	err := s.View(t.Context(), func(tx store.Tx) error {
		got, err := tx.Targets().Get(t.Context(), f.tenant, f.targets[0].ID)
		if got.Desired.Generation != 7 || got.Observed.Generation != 1 {
			t.Errorf("got %+v, want the desired and the observed state", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnOlderReportThatComesLaterIsIgnored: two sessions of one agent may report at the same time.
func TestAnOlderReportThatComesLaterIsIgnored(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s, conn := pgtest.Open(t, d), admin(t, d)
	f := newBed(t, s, 1, 1)
	older := make(chan error, 1)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		err := f.report(ctx, tx, f.targets, 5)
		go func() {
			older <- s.Update(ctx, func(tx store.Tx) error { return f.report(ctx, tx, f.targets, 4) })
		}()
		testkit.Eventually(t, patience, func(context.Context) error {
			if waiters(t, conn) == 0 {
				return fmt.Errorf("the older report does not wait")
			}
			return nil
		})
		return err
	})
	if err := <-older; err != nil {
		t.Fatal(err)
	}
	err := s.View(t.Context(), func(tx store.Tx) error {
		got, err := tx.Targets().Get(t.Context(), f.tenant, f.targets[0].ID)
		if got.Observed.Generation != 5 {
			t.Errorf("got generation %d, want 5", got.Observed.Generation)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
