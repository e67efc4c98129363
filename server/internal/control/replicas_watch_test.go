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
	const names, replicas = 30, 3
	rooms := newRooms(t, newPostgres(t), replicas, control.Config{BeatLapse: time.Hour}) // by beats nobody is missed while this runs
	l := &ledger{holds: map[string]int{}}
	stops := l.begin(t, rooms, names)
	led := func(by int) func(context.Context) error { return l.spread(names, by) }
	testkit.Eventually(t, patience, led(replicas))
	stops[1]() // what it led ends with it, as with its process
	began := time.Now()
	rooms[1].kill()
	testkit.Eventually(t, patience, led(replicas-1))
	t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
}
