package control

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: T3 (fairness). A tenant with very many that hang delays nobody else.
func TestATenantThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(64, 16, 512)
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			go func() { _, _ = p.take(ctx, "hangs") }() // never given back
		}
		synctest.Wait()
		if p.taken != 16 || len(p.queue) != 984 {
			t.Fatalf("the tenant has %d places, and %d wait", p.taken, len(p.queue))
		}
		for i := range 100 { // more tenants than places: each gets its first at once
			release, err := p.take(ctx, fleet.TenantID(fmt.Sprint("other", i)))
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
		p := newPlaces(3, 3, 3)
		var held []func()
		for range 3 {
			release, err := p.take(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan fleet.TenantID, 5)
		for _, tenant := range []fleet.TenantID{"a", "a", "b", "c", "b"} {
			go func() {
				if _, err := p.take(ctx, tenant); err == nil {
					served <- tenant
				}
			}()
			synctest.Wait()
		}
		for _, want := range []fleet.TenantID{"b", "c", "a"} {
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
		p := newPlaces(1, 1, 1)
		release, err := p.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := p.take(ctx, "b"); failed <- err }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		release()
		again, err := p.take(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		again()
		if p.taken != 0 || len(p.queue) != 0 || len(p.of) != 0 {
			t.Errorf("left: %d taken, %d waiting, %v", p.taken, len(p.queue), p.of)
		}
	})
}
