package sqlite

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestAPoolClosesWhenAllConnectionsAreBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(nil, 3)
		var lent []*conn
		for range 3 {
			c, err := p.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lent = append(lent, c)
		}
		waiter := make(chan error, 1)
		go func() {
			_, err := p.acquire(t.Context())
			waiter <- err
		}()
		synctest.Wait()
		closed := false
		go func() { closed = p.close() }()
		if err := <-waiter; !errors.Is(err, store.ErrClosed) {
			t.Errorf("one who waits for a pool that closes: got error %v, want %v", err, store.ErrClosed)
		}
		for i, c := range lent {
			synctest.Wait()
			if closed {
				t.Fatalf("the pool closed while %d connections were lent", len(lent)-i)
			}
			p.release(c)
		}
		synctest.Wait()
		if !closed {
			t.Error("the pool did not close")
		}
		if p.close() {
			t.Error("closing again should say that it was closed before")
		}
	})
}

func TestAPoolLendsNothingToWhoIsNotThere(t *testing.T) {
	t.Parallel()
	p := newPool(nil, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select between a connection and the end is random
		if _, err := p.acquire(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v, want %v", err, context.Canceled)
		}
	}
}
