package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

func take(t *testing.T, s *postgres.Store, name string) (store.Lock, bool) {
	t.Helper()
	l, ok, err := s.Lock(t.Context(), name)
	if err != nil {
		t.Fatalf("locking %q: %v", name, err)
	}
	return l, ok
}

// mustTake waits until the database has noticed that the previous holder is gone.
func mustTake(t *testing.T, s *postgres.Store, name string) store.Lock {
	t.Helper()
	var l store.Lock
	testkit.Eventually(t, patience, func(context.Context) error {
		var ok bool
		if l, ok = take(t, s, name); !ok {
			return fmt.Errorf("lock %q is taken", name)
		}
		return nil
	})
	return l
}

func kept(t *testing.T, l store.Lock) {
	t.Helper()
	select {
	case <-l.Lost():
		t.Error("the lock was lost")
	default:
	}
}

func TestOneOfAllProcessesHoldsALock(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	a, b := pgtest.Open(t, d), pgtest.Open(t, d)
	first, ok := take(t, a, "x")
	if !ok {
		t.Fatal("a free name was refused")
	}
	for who, s := range map[string]*postgres.Store{"the same process": a, "another process": b} {
		if _, ok := take(t, s, "x"); ok {
			t.Errorf("%s locked a name that is locked", who)
		}
	}
	if _, ok := take(t, b, "y"); !ok {
		t.Error("another name was refused")
	}
	kept(t, first)
	first.Release()
	second, ok := take(t, b, "x")
	if !ok {
		t.Fatal("a released name was refused")
	}
	first.Release() // the second release must not release the lock of another
	if _, ok := take(t, a, "x"); ok {
		t.Error("a release of one took the lock of another")
	}
	kept(t, second)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.Lost():
	default:
		t.Error("a closed store must notify the holders of its locks")
	}
	second.Release() // does nothing, and does not hang
	mustTake(t, a, "x")
	if _, _, err := b.Lock(t.Context(), "z"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("on a closed store: got error %v, want %v", err, store.ErrClosed)
	}
}

func TestLocksAreLostWithTheirConnection(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	a, b, conn := pgtest.Open(t, d), pgtest.Open(t, d), admin(t, d)
	var held []store.Lock
	for i := range 50 {
		l, ok := take(t, a, fmt.Sprintf("lock-%d", i))
		if !ok {
			t.Fatal("a free name was refused")
		}
		held = append(held, l)
	}
	const holders = `SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND database =
		(SELECT oid FROM pg_database WHERE datname = current_database())`
	if n := one[int](t, conn, holders); n != 1 {
		t.Errorf("%d connections hold locks, want 1", n)
	}
	terminate(t, conn, "SELECT pg_try_advisory_lock%")
	for _, l := range held {
		select {
		case <-l.Lost():
		case <-time.After(patience):
			t.Fatal("the holder was not notified that the lock is lost")
		}
	}
	other := mustTake(t, b, "lock-7")
	held[7].Release() // a lost lock is not released
	if _, ok := take(t, a, "lock-7"); ok {
		t.Error("a lock was granted although another process holds it")
	}
	kept(t, other)
	again, ok := take(t, a, "lock-8") // on a new connection
	if !ok {
		t.Fatal("a free name was refused")
	}
	kept(t, again)
}

func TestACallerWhoLeavesCostsNoLock(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	l, _ := take(t, s, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Lock(ctx, "y"); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	kept(t, l)
	if _, ok := take(t, s, "y"); !ok {
		t.Error("a canceled request was locked")
	}
}

func TestOneTakesALockThatManyWant(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	stores := []*postgres.Store{pgtest.Open(t, d), pgtest.Open(t, d)}
	const each = 20
	got := make(chan bool, each*len(stores))
	for i := range cap(got) {
		go func() {
			_, ok, err := stores[i%len(stores)].Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			got <- ok
		}()
	}
	winners := 0
	for range cap(got) {
		if <-got {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d got the lock, want 1", winners)
	}
}
