package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/backoff"
)

func TestDelayDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	b := backoff.Backoff{Min: 250 * time.Millisecond, Max: 2 * time.Second}
	for attempt, longest := range map[int]time.Duration{
		0: 250 * time.Millisecond, 1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 4: 2 * time.Second, math.MaxInt: 2 * time.Second,
	} {
		different := map[time.Duration]bool{}
		for range 100 {
			d := b.Delay(attempt)
			if d < longest/2 || d > longest {
				t.Fatalf("Delay(%d) = %s, want between %s and %s", attempt, d, longest/2, longest)
			}
			different[d] = true
		}
		if len(different) < 2 {
			t.Errorf("Delay(%d) is always the same, want jitter", attempt)
		}
	}
}
