package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// counting counts the transactions that only read.
type counting struct {
	store.Store
	views atomic.Int64
}

func (c *counting) View(ctx context.Context, fn func(tx store.Tx) error) error {
	c.views.Add(1)
	return c.Store.View(ctx, fn)
}

var errEnough = errors.New("enough")

// follow reads the feed of a tenant until it has n changes.
func (r *replica) follow(ctx context.Context, tenant string, after int64, n int) ([]store.Change, error) {
	var out []store.Change
	err := r.Follow(ctx, admin, tenant, after, func(batch []store.Change) error {
		if out = append(out, batch...); len(out) >= n {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

// covers: T7
// defect: B5
func TestFeedResumesFromAnyCursorWithoutLoss(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, name := range []string{"a", "b", "c"} {
			if _, err := r.CreateTenant(ctx, admin, control.CreateTenant{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		const agents = 20
		for i := range agents {
			for _, tenant := range []string{"a", "b"} {
				if _, err := r.EnrollAgent(ctx, admin, tenant, control.EnrollAgent{Name: fmt.Sprint("agent-", i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		all, err := r.follow(ctx, "a", 0, 3*agents)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(all, func(a, b store.Change) int { return int(a.Seq - b.Seq) }) {
			t.Error("not in order")
		}
		for i := 1; i < len(all); i += 7 {
			rest, err := r.follow(ctx, "a", all[i].Seq, len(all)-i-1)
			if err != nil || len(rest) < len(all)-i-1 || rest[0].Seq != all[i+1].Seq || rest[0].TenantID != all[0].TenantID {
				t.Fatalf("after %d: %d changes, %v", all[i].Seq, len(rest), err)
			}
		}
	})
}

// Changes from before the start of the server are only in the database, and join the later ones.
func TestFeedGoesOnFromBeforeTheServerStarted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		before := newReplicas(t, db, 1, control.Config{})[0]
		for _, tenant := range []string{"a", "b"} {
			if _, err := before.CreateTenant(ctx, admin, control.CreateTenant{Name: tenant}); err != nil {
				t.Fatal(err)
			}
			if _, err := before.EnrollAgent(ctx, admin, tenant, control.EnrollAgent{Name: "old"}); err != nil {
				t.Fatal(err)
			}
		}
		before.kill()
		counted, opened := &counting{}, db.open
		db.open = func(t *testing.T) store.Store {
			counted.Store = opened(t)
			return counted
		}
		r := newReplicas(t, db, 1, control.Config{})[0]
		agents, ready := make(chan string, 10), make(chan struct{})
		go func() {
			defer close(agents)
			_ = r.Follow(ctx, admin, "a", 0, func(batch []store.Change) error {
				if batch == nil {
					close(ready)
				}
				for _, c := range batch {
					if c.Kind == store.ChangeAgent {
						agents <- c.ID
					}
				}
				return nil
			})
		}()
		<-ready
		old := <-agents
		// From here on it is in step: nothing is read for it alone.
		reads := counted.views.Load()
		for i := range 20 {
			if _, err := r.EnrollAgent(ctx, admin, "b", control.EnrollAgent{Name: fmt.Sprint("b-", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if reads = counted.views.Load() - reads; reads > 100 {
			t.Errorf("20 commits of another tenant cost %d reads", reads)
		}
		fresh, err := r.EnrollAgent(ctx, admin, "a", control.EnrollAgent{Name: "fresh"})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-agents; got != string(fresh.Agent.ID) || got == old {
			t.Errorf("after %s came %q, want %s", old, got, fresh.Agent.ID)
		}
	})
}

// Many followers cost one query per commit, and unaffected ones are not woken.
func TestFollowersShareOneReader(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	counted := &counting{}
	opened := db.open
	db.open = func(t *testing.T) store.Store {
		counted.Store = opened(t)
		return counted
	}
	r := newReplicas(t, db, 1, control.Config{})[0]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const followers, commits = 200, 50
	ready, done := make(chan struct{}, followers), make(chan error, followers)
	for range followers {
		go func() {
			n := 0
			err := r.Follow(ctx, admin, "default", -1, func(batch []store.Change) error {
				if batch == nil {
					ready <- struct{}{}
				}
				for _, c := range batch {
					if c.Kind == store.ChangeAgent {
						n++
					}
				}
				if n == commits {
					return errEnough
				}
				return nil
			})
			done <- err
		}()
	}
	for range followers {
		<-ready
	}
	before := counted.views.Load()
	for i := range commits {
		if _, err := r.EnrollAgent(ctx, admin, "default", control.EnrollAgent{Name: fmt.Sprint("agent-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range followers {
		if err := <-done; !errors.Is(err, errEnough) {
			t.Fatalf("following: %v", err)
		}
	}
	if reads := counted.views.Load() - before; reads > 4*commits {
		t.Errorf("%d followers of %d commits cost %d reads", followers, commits, reads)
	}
}

// A follower of a silent tenant is not lost when changes of others were trimmed.
func TestSilentFollowerOutlivesATrim(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, name := range []string{"loud", "silent"} {
			if _, err := r.CreateTenant(ctx, admin, control.CreateTenant{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		ready, got := make(chan struct{}), make(chan error, 1)
		go func() {
			got <- r.Follow(ctx, admin, "silent", -1, func(batch []store.Change) error {
				if batch == nil {
					close(ready)
					return nil
				}
				return errEnough
			})
		}()
		<-ready
		caught := make(chan error, 1) // the server itself has to be up to date: what it never read is lost to all
		go func() {
			agents := 0
			caught <- r.Follow(ctx, admin, "loud", 0, func(batch []store.Change) error {
				for _, c := range batch {
					if c.Kind == store.ChangeAgent {
						agents++
					}
				}
				if agents == 30 {
					return errEnough
				}
				return nil
			})
		}()
		for i := range 30 {
			if _, err := r.EnrollAgent(ctx, admin, "loud", control.EnrollAgent{Name: fmt.Sprint("agent-", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-caught; !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
		err := r.store.Update(ctx, func(tx store.Tx) error { return tx.Changes().Trim(ctx, 1) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.EnrollAgent(ctx, admin, "silent", control.EnrollAgent{Name: "late"}); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, errEnough) {
			t.Errorf("following: %v", err)
		}
		// A follower with an old cursor gets an error about missing records.
		if err := r.Follow(ctx, admin, "silent", 1, func([]store.Change) error { return nil }); !errors.Is(err, changefeed.ErrCursorLost) {
			t.Errorf("with an old cursor: %v", err)
		}
	})
}

// covers: T7
// defect: B5
func TestFeedGoesOnWhenTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	flaky := &failing{}
	opened := db.open
	db.open = func(t *testing.T) store.Store {
		flaky.Store = opened(t)
		return flaky
	}
	r := newReplicas(t, db, 1, control.Config{})[0]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ready, got := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		_ = r.Follow(ctx, admin, "default", -1, func(batch []store.Change) error {
			if batch == nil {
				close(ready)
			}
			for _, c := range batch {
				if c.Kind == store.ChangeAgent {
					n++
				}
			}
			if n == 5 {
				return errEnough
			}
			return nil
		})
		got <- n
	}()
	<-ready
	flaky.down.Store(true)
	for i := range 5 { // writes still work: another server's, as it were
		if _, err := r.EnrollAgent(ctx, admin, "default", control.EnrollAgent{Name: fmt.Sprint("agent-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		if flaky.refused.Load() == 0 {
			return errors.New("there was no read")
		}
		return nil
	})
	flaky.down.Store(false)
	if n := <-got; n != 5 {
		t.Errorf("%d of 5 changes arrived", n)
	}
}

// failing is a store that cannot be read while it is down.
type failing struct {
	store.Store
	down    atomic.Bool
	refused atomic.Int64
}

func (f *failing) View(ctx context.Context, fn func(tx store.Tx) error) error {
	if f.down.Load() {
		f.refused.Add(1)
		return errors.New("the database is away")
	}
	return f.Store.View(ctx, fn)
}
