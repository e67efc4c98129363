package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var concurrencyTests = map[string]func(*testing.T, store.Store){
	"writers and readers do not disturb each other": writersAndReaders,
	"a cursor misses nothing":                       cursorMissesNothing,
	"only one of many takes a name":                 oneTakesTheName,
}

const (
	writers = 4
	rounds  = 25
)

// inParallel runs fn for 0…n-1 and reports the first error of each.
func inParallel(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := fn(i); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// writersAndReaders lets writers append events while readers check, in each snapshot, what every
// transaction keeps true: there are as many events as records of them.
func writersAndReaders(t *testing.T, s store.Store) {
	tenant := newTenant(t, s, "a")
	ctx := t.Context()
	write := func(i int) error {
		for n := range rounds {
			err := s.Update(ctx, func(tx store.Tx) error {
				return tx.Events().Append(ctx, fleet.Event{At: at(n), TenantID: tenant, Type: fleet.EventNormal, Message: fmt.Sprint(i, n)})
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	check := func(int) error {
		for range rounds {
			err := s.View(ctx, func(tx store.Tx) error {
				events, err := tx.Events().List(ctx, tenant, store.EventFilter{Limit: 1000})
				if err != nil {
					return err
				}
				changes, err := tx.Changes().After(ctx, tenant, 0, 1000)
				if err == nil && len(events) != len(changes) {
					err = fmt.Errorf("a snapshot shows %d events and %d records of them", len(events), len(changes))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	inParallel(t, 2*writers, func(i int) error {
		if i%2 == 0 {
			return write(i)
		}
		return check(i)
	})
	same(t, "events", len(listEvents(t, s, tenant, store.EventFilter{Limit: 1000})), writers*rounds)
}

// cursorMissesNothing follows the outbox by its cursor, woken by Notify, while others write.
func cursorMissesNothing(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	start := last(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	wake := s.Notify(ctx)
	followed := make(chan error, 1)
	go func() { followed <- follow(ctx, s, wake, start, writers*rounds) }()
	inParallel(t, writers, func(int) error {
		for range rounds {
			err := s.Update(ctx, func(tx store.Tx) error { return tx.Events().Append(ctx, w.event) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := <-followed; err != nil {
		t.Error(err)
	}
}

func follow(ctx context.Context, s store.Store, wake <-chan struct{}, cursor int64, want int) error {
	for got := 0; got < want; {
		var page []store.Change
		err := s.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Changes().AfterAllTenants(ctx, cursor, 7)
			return err
		})
		if err != nil {
			return err
		}
		for _, c := range page {
			if c.Seq <= cursor {
				return fmt.Errorf("number %d came after %d", c.Seq, cursor)
			}
			cursor = c.Seq
		}
		got += len(page)
		if len(page) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("saw %d of %d changes: %w", got, want, ctx.Err())
		}
	}
	return nil
}

func oneTakesTheName(t *testing.T, s store.Store) {
	tenant := newTenant(t, s, "a")
	ctx := t.Context()
	var mu sync.Mutex
	won := 0
	inParallel(t, 8, func(int) error {
		err := s.Update(ctx, func(tx store.Tx) error { return tx.Agents().Create(ctx, newAgent(tenant, "the-one")) })
		if errors.Is(err, store.ErrExists) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		won++
		return err
	})
	same(t, "creations that succeeded", won, 1)
}
