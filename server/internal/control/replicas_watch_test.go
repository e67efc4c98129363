package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// covers: O7
func TestTheWorkOfADeadReplicaIsTakenOverBeforeItsBeatIsMissed(t *testing.T) {
	t.Parallel()
	const names, count = 30, 3
	replicas := newReplicas(t, newPostgres(t), count, control.Config{BeatTimeout: time.Hour}) // heartbeats detect no missing replica in this time
	l := &ledger{holds: map[string]int{}}
	stops := l.begin(t, replicas, names)
	led := func(by int) func(context.Context) error { return l.spread(names, by) }
	testkit.Eventually(t, patience, led(count))
	stops[1]() // its work ends with it, like with its process
	began := time.Now()
	replicas[1].kill()
	testkit.Eventually(t, patience, led(count-1))
	t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
}
