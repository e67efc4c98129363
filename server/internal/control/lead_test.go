package control_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// ledger records the leaders.
type ledger struct {
	mu    sync.Mutex
	holds map[string]int // by name: which replica
	clash []string
}

func (l *ledger) lead(ctx context.Context, name string, replica int) {
	l.mu.Lock()
	if other, held := l.holds[name]; held {
		l.clash = append(l.clash, fmt.Sprintf("%s: %d while %d", name, replica, other))
	}
	l.holds[name] = replica
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, name)
}

// shares returns how many names each replica leads.
func (l *ledger) shares() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[int]int{}
	for _, replica := range l.holds {
		out[replica]++
	}
	return out
}

// begin lets every replica compete for the work, and returns functions that end the work of each. All of it
// ends with the test.
func (l *ledger) begin(t *testing.T, replicas []*replica, names int) []context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	t.Cleanup(func() { cancel(); leading.Wait() })
	stops := make([]context.CancelFunc, len(replicas))
	for i, r := range replicas {
		own, stop := context.WithCancel(ctx)
		stops[i] = stop
		for n := range names {
			leading.Go(func() {
				r.Lead(own, fmt.Sprint("work/", n), func(ctx context.Context) { l.lead(ctx, fmt.Sprint("work/", n), i) })
			})
		}
	}
	return stops
}

// spread returns nil if all work is led, by that many replicas.
func (l *ledger) spread(names, over int) func(context.Context) error {
	return func(context.Context) error {
		shares, total := l.shares(), 0
		for _, n := range shares {
			total += n
		}
		if total != names || len(shares) != over {
			return fmt.Errorf("%d of %d are led, by %v", total, names, shares)
		}
		return nil
	}
}

func TestWorkIsLedByOneReplicaAtATime(t *testing.T) {
	t.Parallel()
	const names, count = 60, 3
	replicas := newReplicas(t, newPostgres(t), count, control.Config{BeatEvery: 150 * time.Millisecond})
	l := &ledger{holds: map[string]int{}}
	stops := l.begin(t, replicas, names)
	spread := func(over int) func(context.Context) error { return l.spread(names, over) }
	testkit.Eventually(t, patience, spread(count))
	stops[1]() // what it led ends with it, as with its process
	replicas[1].kill()
	began := time.Now()
	testkit.Eventually(t, patience, spread(count-1))
	t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.clash) > 0 {
		t.Errorf("led twice at once: %v", l.clash)
	}
}
