package places

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Invariant 12: an owner with very many that hang delays nobody else.
func TestAnOwnerThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Usual: 64, Share: 16, Most: 512})
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			go func() { _, _ = p.Take(ctx, "hangs") }() // never given back
		}
		synctest.Wait()
		if p.taken != 16 || len(p.queue) != 984 {
			t.Fatalf("the owner has %d places, and %d wait", p.taken, len(p.queue))
		}
		for i := range 100 { // more owners than places: each gets its first at once
			release, err := p.Take(ctx, fmt.Sprint("other", i))
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

func TestPlacesAreSharedByWhoHasLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Usual: 3, Share: 3, Most: 3})
		var held []func()
		for range 3 {
			release, err := p.Take(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan string, 5)
		for _, owner := range []string{"a", "a", "b", "c", "b"} {
			go func() {
				if _, err := p.Take(ctx, owner); err == nil {
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

func TestAWaitThatIsGivenUpLosesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Usual: 1, Share: 1, Most: 1})
		release, err := p.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := p.Take(ctx, "b"); failed <- err }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		release()
		again, err := p.Take(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		again()
		if p.taken != 0 || len(p.queue) != 0 || len(p.of) != 0 {
			t.Errorf("left: %d taken, %d waiting, %v", p.taken, len(p.queue), p.of)
		}
	})
}

func TestPlacesAtAHostAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Usual: 16, Share: 16, Most: 32, PerHost: 4, HostShare: 3})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got atomic.Int64
		take := func(owner, host string) {
			t.Helper()
			go func() {
				if _, err := p.TakeAt(ctx, owner, host); err == nil {
					got.Add(1)
				}
			}()
			synctest.Wait()
		}
		want := func(n int64, why string) {
			t.Helper()
			if got.Load() != n {
				t.Errorf("%s: %d have a place, want %d", why, got.Load(), n)
			}
		}
		for range 6 {
			take("a", "slow")
		}
		want(3, "one owner at one host")
		take("a", "fast")
		want(4, "the same owner elsewhere")
		take("b", "slow")
		want(5, "another owner at that host")
		take("c", "slow")
		want(5, "a host that has all its places")
		take("c", "")
		want(6, "work that is here")
		p.release(seat{"a", "slow"})
		synctest.Wait()
		want(7, "a place that came back")
		if p.seats[seat{"c", "slow"}] != 1 {
			t.Error("it did not go to who had the least")
		}
		cancel()
		synctest.Wait()
	})
}
