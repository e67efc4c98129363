package reposync

import (
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestPausesGrowAfterFailures(t *testing.T) {
	t.Parallel()
	w := &worker{svc: &Manager{cfg: Config{PollInterval: 30 * time.Second}}}
	for failures, want := range []time.Duration{30 * time.Second, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		32 * time.Second, 64 * time.Second, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute} {
		w.failures = failures
		distinct := map[time.Duration]bool{}
		for range 50 {
			got := w.pause()
			distinct[got] = true
			if got < want*9/10 || got > want*11/10 {
				t.Errorf("after %d failures the pause is %s, want about %s", failures, got, want)
			}
		}
		if len(distinct) < 10 {
			t.Errorf("after %d failures all wait equally long", failures)
		}
	}
}

func TestWhichPushesConcernARange(t *testing.T) {
	t.Parallel()
	tests := []struct {
		refs []string
		want bool
	}{
		{[]string{"refs/tags/v1.0.0"}, true},
		{[]string{"refs/heads/main", "refs/tags/x"}, true},
		{[]string{""}, true},
		{[]string{"refs/heads/main"}, false},
	}
	for _, tt := range tests {
		due := wakeup{}
		for _, ref := range tt.refs {
			due = due.merge(wakeupOf(store.Wake{Reason: store.WakePush, Ref: ref}, time.Now()))
		}
		if got := due.concerns("semver:^1"); got != tt.want {
			t.Errorf("%q: %t, want %t", tt.refs, got, tt.want)
		}
	}
}
