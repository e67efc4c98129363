package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// awaiting counts the waiters for a lock in the database.
const awaiting = `SELECT count(*) FROM pg_stat_activity
	WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%pg_advisory_lock_shared%'`

func TestAwaitFreeReturnsWhenTheHolderIsGone(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	holder, a, b := pgtest.Open(t, d), pgtest.Open(t, d), pgtest.Open(t, d)
	conn := admin(t, d)
	if _, ok := take(t, holder, "x"); !ok {
		t.Fatal("a free name was refused")
	}
	done := make(chan error, 2)
	for _, s := range []interface {
		AwaitFree(context.Context, string) error
	}{a, b} {
		go func() { done <- s.AwaitFree(t.Context(), "x") }()
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		if n := one[int](t, conn, awaiting); n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	_ = holder.Close()
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("the waiter was not notified that the lock is free")
		}
	}
	mustTake(t, a, "x") // waiting does not take the lock
}

func TestAwaitFreeThatIsGivenUpLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	holder, s := pgtest.Open(t, d), pgtest.Open(t, d)
	conn := admin(t, d)
	if _, ok := take(t, holder, "x"); !ok {
		t.Fatal("a free name was refused")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.AwaitFree(ctx, "x") }()
	await := func(want int) {
		t.Helper()
		testkit.Eventually(t, patience, func(context.Context) error {
			if n := one[int](t, conn, awaiting); n != want {
				return fmt.Errorf("%d wait, not %d", n, want)
			}
			return nil
		})
	}
	await(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	await(0)
}
