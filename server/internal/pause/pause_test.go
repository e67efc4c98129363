package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/server/internal/pause"
)

func TestForWaitsUnlessTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !pause.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("waited %s, want one minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if pause.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("waited %s after the context ended, want one second", time.Since(began))
		}
	})
}
