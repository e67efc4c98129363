package fairlimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Invariant 12: an owner with many hanging requests delays no other owner.
func TestAnOwnerThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Usual: 64, Share: 16, Most: 512})
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			go func() { _, _ = l.Acquire(ctx, "hangs") }() // never released
		}
		synctest.Wait()
		if l.running != 16 || len(l.queue) != 984 {
			t.Fatalf("the owner runs %d, and %d wait", l.running, len(l.queue))
		}
		for i := range 100 { // more owners than the limit: the first work of each starts at once
			release, err := l.Acquire(ctx, fmt.Sprint("other", i))
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				release()
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestTheOwnerWithTheLeastRunningIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Usual: 3, Share: 3, Most: 3})
		var held []func()
		for range 3 {
			release, err := l.Acquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan string, 5)
		for _, owner := range []string{"a", "a", "b", "c", "b"} {
			go func() {
				if _, err := l.Acquire(ctx, owner); err == nil {
					served <- owner
				}
			}()
			synctest.Wait()
		}
		for _, want := range []string{"b", "c", "a"} {
			held[0]()
			held = held[1:]
			synctest.Wait()
			if got := <-served; got != want {
				t.Errorf("%s was served before %s", got, want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestACancelledWaitLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Usual: 1, Share: 1, Most: 1})
		release, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := l.Acquire(ctx, "b"); failed <- err }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		release()
		again, err := l.Acquire(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		again()
		if l.running != 0 || len(l.queue) != 0 || len(l.byOwner) != 0 {
			t.Errorf("left: %d running, %d waiting, %v", l.running, len(l.queue), l.byOwner)
		}
	})
}

func TestAHostIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Usual: 16, Share: 16, Most: 32, PerHost: 4, HostShare: 3})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got atomic.Int64
		start := func(owner, host string) {
			t.Helper()
			go func() {
				if _, err := l.AcquireAt(ctx, owner, host); err == nil {
					got.Add(1)
				}
			}()
			synctest.Wait()
		}
		want := func(n int64, why string) {
			t.Helper()
			if got.Load() != n {
				t.Errorf("%s: %d run, want %d", why, got.Load(), n)
			}
		}
		for range 6 {
			start("a", "slow")
		}
		want(3, "one owner at one host")
		start("a", "fast")
		want(4, "the same owner elsewhere")
		start("b", "slow")
		want(5, "another owner at that host")
		start("c", "slow")
		want(5, "a host at its limit")
		start("c", "")
		want(6, "work on this machine")
		l.release(key{"a", "slow"})
		synctest.Wait()
		want(7, "after one has ended")
		if l.byKey[key{"c", "slow"}] != 1 {
			t.Error("the owner with the least running was not next")
		}
		cancel()
		synctest.Wait()
	})
}
