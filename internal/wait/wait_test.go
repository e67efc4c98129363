package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/internal/wait"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	var b wait.Backoff
	for _, seconds := range []int{1, 2, 4, 8, 10, 10} {
		if got, want := b.Next(time.Second, 10*time.Second), time.Duration(seconds)*time.Second; got != want {
			t.Errorf("attempt %d: delay %v, want %v", b.Attempts(), got, want)
		}
	}
	for range 100 {
		if got := b.Next(time.Hour, 24*time.Hour); got != 24*time.Hour {
			t.Fatalf("attempt %d: delay %v, want the limit", b.Attempts(), got)
		}
	}
	b.Reset()
	if got := b.Next(time.Second, time.Minute); got != time.Second {
		t.Errorf("after Reset: delay %v, want the first", got)
	}
	b.Skip(3)
	b.Skip(2) // fewer than there were
	if got := b.Next(time.Second, time.Minute); got != 8*time.Second {
		t.Errorf("after Skip(3): delay %v, want 8s", got)
	}
}

func TestJitterStaysWithinItsFraction(t *testing.T) {
	t.Parallel()
	for _, fraction := range []float64{0, 0.2, 1} {
		for range 1000 {
			got, least := wait.Jitter(time.Second, fraction), time.Second-time.Duration(fraction*float64(time.Second))
			if got > time.Second || got < least {
				t.Fatalf("Jitter(1s, %v) = %v, want between %v and 1s", fraction, got, least)
			}
		}
	}
	if got := wait.Jitter(0, 1); got != 0 {
		t.Errorf("Jitter(0, 1) = %v, want 0", got)
	}
}

func TestForEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !wait.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("waited for %v, want a minute", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if began = time.Now(); wait.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("waited for %v, want until the context ends", time.Since(began))
		}
	})
}

func TestSignalsAreCoalesced(t *testing.T) {
	t.Parallel()
	s := wait.NewSignal()
	for range 3 {
		s.Set()
	}
	if len(s) != 1 {
		t.Errorf("%d signals wait, want one", len(s))
	}
}
