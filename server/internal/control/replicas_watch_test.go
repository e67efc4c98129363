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

// covers: C9
func TestTheWorkOfADeadReplicaIsTakenOverBeforeItsBeatIsMissed(t *testing.T) {
	t.Parallel()
	const names, replicas = 30, 3
	rooms := newRooms(t, newPostgres(t), replicas, control.Config{BeatLapse: time.Hour}) // by beats nobody is missed while this runs
	l := &ledger{holds: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	defer leading.Wait()
	defer cancel()
	stops := make([]context.CancelFunc, replicas)
	for i, r := range rooms {
		own, stop := context.WithCancel(ctx)
		stops[i] = stop
		for n := range names {
			leading.Go(func() {
				r.Lead(own, fmt.Sprint("work/", n), func(ctx context.Context) { l.lead(ctx, fmt.Sprint("work/", n), i) })
			})
		}
	}
	led := func(by int) func(context.Context) error {
		return func(context.Context) error {
			shares, total := l.shares(), 0
			for _, n := range shares {
				total += n
			}
			if total != names || len(shares) != by {
				return fmt.Errorf("%d of %d are led, by %v", total, names, shares)
			}
			return nil
		}
	}
	testkit.Eventually(t, patience, led(replicas))
	stops[1]() // what it led ends with it, as with its process
	began := time.Now()
	rooms[1].kill()
	testkit.Eventually(t, patience, led(replicas-1))
	t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
}
