package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// TestARestartOfTheDatabaseIsSurvived restarts the server below two stores, one of which never
// stops writing.
func TestARestartOfTheDatabaseIsSurvived(t *testing.T) {
	t.Parallel()
	own := &testpostgres.Server{}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := (&pgtest.Template{Server: own}).Database(t)
	a, b := pgtest.Open(t, d), pgtest.Open(t, d)
	tenant, agent := newTenant(t, a, "a")
	held, _ := take(t, a, "x")
	wake := b.Notify(t.Context())

	w := newWriters(t, a, tenant, 4)
	w.await(t, 20)
	own.Restart(t)
	w.await(t, 20)
	acknowledged, attempted := w.stop()

	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Error("the holder was not notified that the lock is lost")
	}
	mustTake(t, b, "x")
	if _, ok := take(t, a, "x"); ok {
		t.Error("a lock was granted although another process holds it")
	}
	if n := one[int64](t, admin(t, d), `SELECT count(*) FROM events`); n < acknowledged || n > attempted {
		t.Errorf("got %d events, want at least the %d that were acknowledged and at most the %d that were tried", n, acknowledged, attempted)
	}
	err := b.View(t.Context(), func(tx store.Tx) error {
		_, err := tx.Agents().Get(t.Context(), tenant, agent)
		return err
	})
	if err != nil {
		t.Errorf("reading with the idle store: %v", err)
	}
	drain(wake)
	testkit.Eventually(t, patience, func(context.Context) error { // until its listener is back
		update(t, a, func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, event(tenant, "x")) })
		select {
		case <-wake:
			return nil
		case <-time.After(50 * time.Millisecond):
			return errors.New("no notification was received")
		}
	})
}

func drain(wake <-chan struct{}) {
	select {
	case <-wake:
	default:
	}
}

// writers append events until stopped. The only allowed error is the one for an unavailable database.
type writers struct {
	cancel         context.CancelFunc
	done           sync.WaitGroup
	tried, written atomic.Int64
}

func newWriters(t *testing.T, s store.Store, tenant fleet.TenantID, n int) *writers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writers{cancel: cancel}
	for range n {
		w.done.Go(func() {
			for ctx.Err() == nil {
				err := s.Update(ctx, func(tx store.Tx) error {
					w.tried.Add(1)
					return tx.Events().Append(ctx, event(tenant, "x"))
				})
				switch {
				case err == nil:
					w.written.Add(1)
				case ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable):
					t.Errorf("writing: got error %v, want none or %v", err, store.ErrUnavailable)
					return
				}
			}
		})
	}
	t.Cleanup(func() { w.stop() })
	return w
}

// await waits until that many more events are written.
func (w *writers) await(t *testing.T, more int64) {
	t.Helper()
	until := w.written.Load() + more
	testkit.Eventually(t, 3*patience, func(context.Context) error {
		if n := w.written.Load(); n < until {
			return fmt.Errorf("%d were written, want %d", n, until)
		}
		return nil
	})
}

func (w *writers) stop() (acknowledged, attempted int64) {
	w.cancel()
	w.done.Wait()
	return w.written.Load(), w.tried.Load()
}
