package backoff

import (
	"testing"
	"time"
)

func TestBackoffGrowsUpToItsLimit(t *testing.T) {
	t.Parallel()
	var b Backoff
	for try := range 100 {
		limit := time.Minute
		want := limit
		if try < 6 {
			want = min(time.Second<<try, limit)
		}
		if got := b.Next(time.Second, limit); got > want || got < want*4/5 {
			t.Fatalf("delay %d is %v, want between %v and %v", try, got, want*4/5, want)
		}
	}
}
