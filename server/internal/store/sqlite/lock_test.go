package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestOneHoldsALock(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	take := func(name string) (store.Lock, bool) {
		l, ok, err := s.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return l, ok
	}
	first, ok := take("a")
	if !ok {
		t.Fatal("a free name was refused")
	}
	if _, ok := take("a"); ok {
		t.Error("a name was locked twice")
	}
	if _, ok := take("b"); !ok {
		t.Error("another name was refused")
	}
	first.Release()
	second, ok := take("a")
	if !ok {
		t.Fatal("a released name was refused")
	}
	first.Release() // the second release must not release the lock of another
	if _, ok := take("a"); ok {
		t.Error("a release of one took the lock of another")
	}
	select {
	case <-second.Lost():
		t.Error("a lock of this process was lost")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Lock(ctx, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: got error %v, want %v", err, context.Canceled)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Lock(t.Context(), "c"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("on a closed store: got error %v, want %v", err, store.ErrClosed)
	}
}
