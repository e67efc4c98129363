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

// shelf is an intake that nobody writes from, with agents that say what a test wants.
type shelf struct {
	*intake
	t *testing.T
}

func newShelf(t *testing.T, writers int) shelf {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, []control.AgentReports) error { return errors.New("not in this test") }
	return shelf{newIntake(never, writers, slog.New(slog.DiscardHandler), m), t}
}

// say puts statuses of n targets of an agent.
func (s shelf) say(agent fleet.AgentID, n int) {
	s.t.Helper()
	from := &session{caller: &caller{agent: fleet.Agent{ID: agent, TenantID: "tnt-1"}}}
	for i := range n {
		r := store.Report{Target: fleet.TargetID(fmt.Sprintf("tgt-%s-%d", agent, i))}
		if err := s.status(s.t.Context(), from, int64(i+1), r); err != nil {
			s.t.Fatal(err)
		}
	}
}

func names(batch []*waiting) (out string) {
	for _, w := range batch {
		out += string(w.agent.ID)
	}
	return out
}

func TestWhoHasWaitedLongestIsWrittenFirst(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 1)
	for _, agent := range []fleet.AgentID{"a", "b", "c", "d"} {
		s.say(agent, maxBatch/2)
	}
	s.say("a", 1) // more does not change its turn
	now := time.Now()
	first, _ := s.take(now)
	s.say("a", 1)
	s.finished("tnt-1", first, maxBatch, false)
	second, _ := s.take(now)
	s.finished("tnt-1", second, maxBatch, false)
	third, _ := s.take(now)
	if got := names(first) + " " + names(second) + " " + names(third); got != "ab cd a" {
		t.Errorf("they were written as %q", got)
	}
}

func TestAFewStatusesWaitForTheBatchThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 8)
	s.say("a", 1)
	first, _ := s.take(time.Now())
	s.say("b", 1)
	now := time.Now()
	few, again := s.take(now)
	if len(few) != 0 || again > besidesAfter {
		t.Errorf("%q was taken beside %q, or may be in %s", names(few), names(first), again)
	}
	if late, _ := s.take(now.Add(2 * besidesAfter)); names(late) != "b" {
		t.Errorf("%q was taken after a while, want b: a write that hangs must not hold it up", names(late))
	}
	s.say("c", besides)
	if many, _ := s.take(now); names(many) != "c" {
		t.Errorf("%q was taken when there was much, want c", names(many))
	}
}

func TestAnAgentThatKeepsToNoWindowIsNotRead(t *testing.T) {
	t.Parallel()
	s := newShelf(t, 1)
	from := &session{caller: &caller{agent: fleet.Agent{ID: "a", TenantID: "tnt-1"}}}
	for n := range int64(2 * wire.StatusWindow) { // all of one target: there is never more than one to write
		if err := s.status(t.Context(), from, n+1, store.Report{Target: "tgt-1"}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.status(ended, from, 0, store.Report{Target: "tgt-1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more was answered with %v, want that it waits", err)
	}
	s.say("b", 1) // others are read
	if _, again := s.take(time.Now()); again != 0 {
		t.Fatalf("nothing was taken for %s", again)
	}
	if err := s.status(t.Context(), from, 0, store.Report{Target: "tgt-1"}); err != nil {
		t.Errorf("after a batch was taken: %v", err)
	}
}
