package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// TestConnectionsThatBreakAreReplaced simulates a restart of the database.
func TestConnectionsThatBreakAreReplaced(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s, conn := pgtest.Open(t, d), admin(t, d)
	tenant, agent := newTenant(t, s, "a")
	view := func() error {
		return s.View(t.Context(), func(tx store.Tx) error {
			_, err := tx.Agents().Get(t.Context(), tenant, agent)
			return err
		})
	}
	add := func() error {
		return s.Update(t.Context(), func(tx store.Tx) error { return tx.Events().Append(t.Context(), event(tenant, "x")) })
	}
	terminate(t, conn, "%")
	if err := view(); err != nil {
		t.Errorf("reading on connections that are all dead: %v", err)
	}
	terminate(t, conn, "%")
	tries := 0
	err := s.Update(t.Context(), func(tx store.Tx) error {
		tries++
		_, err := tx.Agents().Get(t.Context(), tenant, agent)
		return err
	})
	if err != nil || tries != 2 {
		t.Errorf("writing on connections that are all dead: got error %v after %d tries, want none after 2", err, tries)
	}

	// No connection is possible: the error is transient.
	allow := gatekeeper(t, conn)
	allow(false)
	terminate(t, conn, "%")
	for what, do := range map[string]func() error{"reading": view, "writing": add} {
		if err := do(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s while the database is unavailable: got error %v, want %v", what, err, store.ErrUnavailable)
		}
	}
	allow(true)
	for what, do := range map[string]func() error{"reading": view, "writing": add} {
		if err := do(); err != nil {
			t.Errorf("%s when the database is back: %v", what, err)
		}
	}
}

// TestADeadlockIsTriedAgain lets two transactions lock the same two rows in opposite order.
func TestADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	conn := admin(t, d)
	if _, err := conn.Exec(t.Context(), "ALTER DATABASE "+conn.Config().Database+" SET deadlock_timeout = '20ms'"); err != nil {
		t.Fatal(err)
	}
	s := pgtest.Open(t, d)
	f := newBed(t, s, 1, 2)
	met := make(chan struct{})
	done := make(chan error, 2)
	for i := range 2 {
		first, second := f.targets[i:i+1], f.targets[1-i:2-i]
		go func() {
			tries := 0
			done <- s.Update(t.Context(), func(tx store.Tx) error {
				tries++
				if err := f.report(t.Context(), tx, first, int64(i+1)); err != nil {
					return err
				}
				if tries == 1 { // each waits for the other to have its first row
					select {
					case met <- struct{}{}:
					case <-met:
					}
				}
				return f.report(t.Context(), tx, second, int64(i+1))
			})
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("got error %v, want none", err)
		}
	}
}

// TestAnEndedContextEndsTheStatement checks that no statement continues for a canceled caller.
func TestAnEndedContextEndsTheStatement(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s, conn := pgtest.Open(t, d), admin(t, d)
	tenant, _ := newTenant(t, s, "a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Within(ctx, true, func(r postgres.Raw) error {
			_, err := r.As(ctx, tenant, `SELECT pg_sleep(3600)::text`)
			return err
		})
	}()
	sleeping := func() int {
		return one[int](t, conn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'`)
	}
	await := func(want int) {
		t.Helper()
		testkit.Eventually(t, patience, func(context.Context) error {
			if n := sleeping(); n != want {
				return fmt.Errorf("%d statements are running, want %d", n, want)
			}
			return nil
		})
	}
	await(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	await(0)
}
