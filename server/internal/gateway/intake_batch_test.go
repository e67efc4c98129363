package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// testIntake is an intake without writers, and agents that report what a test needs.
type testIntake struct {
	*intake
	t *testing.T
}

func newTestIntake(t *testing.T, writers int) testIntake {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, []control.AgentReports) error { return errors.New("not in this test") }
	return testIntake{newIntake(never, writers, slog.New(slog.DiscardHandler), m), t}
}

// report adds statuses of n targets of an agent.
func (s testIntake) report(agent fleet.AgentID, n int) {
	s.t.Helper()
	from := &session{caller: &caller{agent: fleet.Agent{ID: agent, TenantID: "tnt-1"}}}
	for i := range n {
		r := store.Report{Target: fleet.TargetID(fmt.Sprintf("tgt-%s-%d", agent, i))}
		if err := s.status(s.t.Context(), from, int64(i+1), r); err != nil {
			s.t.Fatal(err)
		}
	}
}

func names(batch []*pendingAgent) (out string) {
	for _, w := range batch {
		out += string(w.agent.ID)
	}
	return out
}

func TestAgentThatHasWaitedLongestIsWrittenFirst(t *testing.T) {
	t.Parallel()
	s := newTestIntake(t, 1)
	for _, agent := range []fleet.AgentID{"a", "b", "c", "d"} {
		s.report(agent, maxBatch/2)
	}
	s.report("a", 1) // another report does not change its position
	now := time.Now()
	first, _ := s.dequeue(now)
	s.report("a", 1)
	s.finishBatch("tnt-1", first, maxBatch, false)
	second, _ := s.dequeue(now)
	s.finishBatch("tnt-1", second, maxBatch, false)
	third, _ := s.dequeue(now)
	if got := names(first) + " " + names(second) + " " + names(third); got != "ab cd a" {
		t.Errorf("the batches are %q, want ab cd a", got)
	}
}

func TestFewStatusesWaitForTheCurrentBatch(t *testing.T) {
	t.Parallel()
	s := newTestIntake(t, 8)
	s.report("a", 1)
	first, _ := s.dequeue(time.Now())
	s.report("b", 1)
	now := time.Now()
	few, retryIn := s.dequeue(now)
	if len(few) != 0 || retryIn > parallelBatchDelay {
		t.Errorf("batch %q was dequeued while %q is being written, or is due in %s", names(few), names(first), retryIn)
	}
	if late, _ := s.dequeue(now.Add(2 * parallelBatchDelay)); names(late) != "b" {
		t.Errorf("batch %q was dequeued after the delay, want b: a write that blocks must not delay it", names(late))
	}
	s.report("c", parallelBatchSize)
	if many, _ := s.dequeue(now); names(many) != "c" {
		t.Errorf("batch %q was dequeued when many reports were pending, want c", names(many))
	}
}

func TestAgentThatExceedsItsWindowIsNotRead(t *testing.T) {
	t.Parallel()
	s := newTestIntake(t, 1)
	from := &session{caller: &caller{agent: fleet.Agent{ID: "a", TenantID: "tnt-1"}}}
	for n := range int64(2 * wire.StatusWindow) { // all of one target: never more than one to write
		if err := s.status(t.Context(), from, n+1, store.Report{Target: "tgt-1"}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.status(ended, from, 0, store.Report{Target: "tgt-1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more status returned %v, want that it waits", err)
	}
	s.report("b", 1) // other agents are not affected
	if _, retryIn := s.dequeue(time.Now()); retryIn != 0 {
		t.Fatalf("the next batch is due in %s, want now", retryIn)
	}
	if err := s.status(t.Context(), from, 0, store.Report{Target: "tgt-1"}); err != nil {
		t.Errorf("after a batch was dequeued: %v", err)
	}
}
