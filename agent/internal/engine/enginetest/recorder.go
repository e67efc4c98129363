package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// limit is how long a case waits for anything. It is a backstop: what is waited for takes well
// below a second on an idle machine, except where a case says otherwise.
const limit = time.Minute

// recorder is an engine.Reporter that can be waited for.
type recorder struct {
	mu       sync.Mutex
	statuses map[fleet.TargetID]engine.Status
	counts   map[fleet.TargetID]int
	// generations are those that a status was ever made of.
	generations map[fleet.TargetID]map[int64]bool
	events      []fleet.Event
	changed     chan struct{} // closed and replaced at every change
}

func newRecorder() *recorder {
	return &recorder{
		statuses: map[fleet.TargetID]engine.Status{}, counts: map[fleet.TargetID]int{},
		generations: map[fleet.TargetID]map[int64]bool{}, changed: make(chan struct{}),
	}
}

func (r *recorder) Status(s engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[s.Target] = s
	r.counts[s.Target]++
	if r.generations[s.Target] == nil {
		r.generations[s.Target] = map[int64]bool{}
	}
	r.generations[s.Target][s.Observed.Generation] = true
	r.notifyLocked()
}

func (r *recorder) Event(_ fleet.TargetID, e fleet.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.notifyLocked()
}

func (r *recorder) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits until check, which is called with the lock held, returns "". Its last text says what
// was missing.
func (r *recorder) await(t testing.TB, check func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		missing, changed := r.ask(check)
		if missing == "" {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("not so after %v: %s", limit, missing)
		}
	}
}

// ask calls check with the lock held, and lets go of it even if check ends the test.
func (r *recorder) ask(check func() string) (missing string, changed chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return check(), r.changed
}

// status waits for a status of the target that is of the generation and in the state.
func (r *recorder) status(t testing.TB, target fleet.TargetID, generation int64, sync fleet.SyncState) engine.Status {
	t.Helper()
	return r.statusWith(t, target, func(s engine.Status) string {
		if s.Observed.Generation != generation || s.Observed.Sync != sync {
			return fmt.Sprintf("want generation %d %s", generation, sync)
		}
		return ""
	})
}

// settled waits for a status of the target in which every object of the generation is as desired: Synced, or OutOfSync
// if deletions wait to be confirmed, which is never called Synced.
func (r *recorder) settled(t testing.TB, target fleet.TargetID, generation int64) engine.Status {
	t.Helper()
	return r.statusWith(t, target, func(s engine.Status) string {
		want, held := fleet.SyncSynced, slices.ContainsFunc(s.Objects, func(o fleet.ObjectStatus) bool { return o.Sync == fleet.SyncHeld })
		if held {
			want = fleet.SyncOutOfSync
		}
		if s.Observed.Generation != generation || s.Observed.Sync != want {
			return fmt.Sprintf("want generation %d %s", generation, want)
		}
		return ""
	})
}

func (r *recorder) statusWith(t testing.TB, target fleet.TargetID, want func(engine.Status) string) engine.Status {
	t.Helper()
	var s engine.Status
	r.await(t, func() string {
		s = r.statuses[target]
		if missing := want(s); missing != "" {
			return fmt.Sprintf("%s; last status is %s", missing, describe(s))
		}
		return ""
	})
	return s
}

// event waits for an event with the reason and with text in its object or message.
func (r *recorder) event(t testing.TB, reason, text string) fleet.Event {
	t.Helper()
	var found fleet.Event
	r.await(t, func() string {
		for _, e := range r.events {
			if string(e.Reason) == reason && strings.Contains(e.Object+" "+e.Message, text) {
				found = e
				return ""
			}
		}
		return fmt.Sprintf("no event %s with %q among %v", reason, text, r.events)
	})
	return found
}

func (r *recorder) count(target fleet.TargetID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[target]
}

func describe(s engine.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "generation %d %s/%s %q digest %.15s", s.Observed.Generation, s.Observed.Sync, s.Observed.Health, s.Observed.Message, s.Observed.Digest)
	for _, o := range s.Objects {
		fmt.Fprintf(&b, "\n\t%s %s/%s %q", o.ObjectRef, o.Sync, o.Health, o.Message)
	}
	return b.String()
}

// object finds the status of one object by "Kind name" or "Kind.group namespace/name".
func object(t testing.TB, s engine.Status, name string) fleet.ObjectStatus {
	t.Helper()
	o := find(s, name)
	if o.Name == "" {
		t.Fatalf("no %q in status %s", name, describe(s))
	}
	return o
}

// find is object for a status that may not list it yet: then it is empty.
func find(s engine.Status, name string) fleet.ObjectStatus {
	for _, o := range s.Objects {
		if o.ObjectRef.String() == name || o.Kind+" "+o.Name == name {
			return o
		}
	}
	return fleet.ObjectStatus{}
}
