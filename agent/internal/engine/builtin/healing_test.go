package builtin

import (
	"testing"
	"time"
)

// covers: D3
func TestHealingIsBounded(t *testing.T) {
	t.Parallel()
	timing := defaultTiming()
	var h healing
	now := time.Now()
	heals := 0
	for end := now.Add(time.Hour); now.Before(end); heals++ {
		// Something changes the object again the moment that it is healed.
		now = now.Add(h.next(now, timing) + time.Millisecond)
	}
	if heals < 60 || heals > 100 {
		t.Errorf("%d heals in an hour of fighting, want about one per minute", heals)
	}
	now = now.Add(3 * timing.healMax)
	for i := range timing.healBurst {
		if delay := h.next(now, timing); delay != 0 {
			t.Errorf("heal %d after a quiet time waits %v, want none", i, delay)
		}
	}
}
