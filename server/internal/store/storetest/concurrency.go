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
	"writers and readers do not disturb each other":   writersAndReaders,
	"a cursor misses nothing":                         cursorMissesNothing,
	"only one of many gets a name":                    oneTakesTheName,
	"only one of many claims a key":                   oneClaimsTheKey,
	"numbers are assigned once":                       numbersAreGivenOnce,
	"presence is correct with concurrent connections": presenceSettles,
	"pages contain everything that stays":             pagesMeetAll,
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

// writersAndReaders lets writers append events while readers check an invariant in each snapshot: the number of
// events equals the number of their records.
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
				if err == nil && len(events) != len(changes)-1 { // one is of the tenant itself
					err = fmt.Errorf("a snapshot shows %d events and %d records of them", len(events), len(changes)-1)
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

// covers: T4
func oneClaimsTheKey(t *testing.T, s store.Store) {
	ctx := t.Context()
	var mu sync.Mutex
	won := 0
	inParallel(t, 8, func(i int) error {
		return s.Update(ctx, func(tx store.Tx) error {
			_, mine, err := tx.Replies().Claim(ctx, store.Reply{Scope: "ada", Key: "k", Request: []byte{byte(i)}, At: at(1)})
			if mine {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
			return err
		})
	})
	same(t, "claims that succeeded", won, 1)
}

func numbersAreGivenOnce(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	ctx := t.Context()
	inParallel(t, writers, func(int) error {
		for range 5 {
			err := s.Update(ctx, func(tx store.Tx) error {
				_, err := tx.Runs().Create(ctx, newRun(w.deployment))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	runs := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.SyncRun, error) {
		return tx.Runs().OfDeployment(ctx, w.tenant.ID, w.deployment.ID, store.RunFilter{})
	})
	for i, r := range runs {
		if want := int64(5*writers + 1 - i); r.Seq != want {
			t.Fatalf("run %d: got number %d, want %d", i, r.Seq, want)
		}
	}
}

// presenceSettles connects and disconnects replicas of one agent concurrently.
func presenceSettles(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	ctx := t.Context()
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Connections().Close(ctx, w.tenant.ID, w.connection.SessionID, at(10), at(10))
		return err
	})
	inParallel(t, writers, func(i int) error {
		for range 10 {
			c := newConnection(w.agent, fmt.Sprint("pod-", i))
			if err := s.Update(ctx, func(tx store.Tx) error { return tx.Connections().Put(ctx, c) }); err != nil {
				return err
			}
			err := s.Update(ctx, func(tx store.Tx) error {
				_, err := tx.Connections().Close(ctx, w.tenant.ID, c.SessionID, at(11), at(11))
				return err
			})
			if err != nil {
				return err
			}
		}
		if i > 0 {
			return nil
		}
		stays := newConnection(w.agent, "pod-stays")
		return s.Update(ctx, func(tx store.Tx) error { return tx.Connections().Put(ctx, stays) })
	})
	connected := true
	same(t, "connected", len(listAgents(t, s, w.tenant.ID, store.AgentFilter{Connected: &connected})), 1)
}

// pagesMeetAll reads deployments page by page while others add and remove some around them.
func pagesMeetAll(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	ctx := t.Context()
	want := map[string]bool{}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range 40 {
			d := newDeployment(w, fmt.Sprintf("stays-%02d", i))
			want[d.Name] = true
			if err := tx.Deployments().Create(ctx, d); err != nil {
				return err
			}
		}
		return nil
	})
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- churn(ctx, s, w, stop) }()
	seen := map[string]int{}
	f := store.DeploymentFilter{Page: store.Page{Limit: 3}, Text: "stays"}
	for {
		page := listDeployments(t, s, w, f)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			seen[d.Name]++
		}
		f.After, f.AfterID = page[len(page)-1].Name, string(page[len(page)-1].ID)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if seen[name] != 1 {
			t.Errorf("%s: seen %d times, want once", name, seen[name])
		}
	}
}

// churn adds and removes matching deployments before, between, and after those that stay.
func churn(ctx context.Context, s store.Store, w *world, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		d := newDeployment(w, fmt.Sprintf("stays-%02d-not-%d", i*7%50, i))
		for _, step := range []func(tx store.Tx) error{
			func(tx store.Tx) error { return tx.Deployments().Create(ctx, d) },
			func(tx store.Tx) error { return tx.Deployments().Remove(ctx, w.tenant.ID, d.ID) },
		} {
			if err := s.Update(ctx, step); err != nil {
				return err
			}
		}
	}
}
