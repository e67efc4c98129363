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

// limit is how long a case waits for anything. It is a backstop: what is waited for takes well below a second on an idle
// machine, and with Argo CD a few seconds, except where a case says otherwise.
const limit = 3 * time.Minute

// recorder is an engine.Reporter that can be waited for.
type recorder struct {
	mu       sync.Mutex
	statuses map[fleet.TargetID]engine.Status
	counts   map[fleet.TargetID]int
	// generations are those that a status was ever made of.
	generations map[fleet.TargetID]map[int64]bool
	events      []fleet.Event
	unlisted    []string      // things that were reported with a reason that is not in the list
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
	r.checkReasonsLocked(s)
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
	r.checkReasonLocked("event", e.Reason)
	r.events = append(r.events, e)
	r.notifyLocked()
}

// checkReasonsLocked notes targets and objects without a reason of the list.
func (r *recorder) checkReasonsLocked(s engine.Status) {
	r.checkReasonLocked("target", s.Observed.Reason)
	for _, o := range s.Objects {
		r.checkReasonLocked(o.ObjectRef.String(), o.Reason)
	}
}

func (r *recorder) checkReasonLocked(what string, reason fleet.Reason) {
	if _, listed := reason.Info(); !listed {
		r.unlisted = append(r.unlisted, fmt.Sprintf("%s: %q", what, reason))
	}
}

// reasonsListed checks that everything was reported with a reason of the list.
func (r *recorder) reasonsListed(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unlisted) > 0 {
		t.Errorf("%d reasons are not in the list of package fleet: %s", len(r.unlisted), r.unlisted[0])
	}
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

// ask calls check with the lock held, and releases it even if check ends the test.
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
func (r *recorder) event(t testing.TB, reason fleet.Reason, text string) fleet.Event {
	t.Helper()
	var found fleet.Event
	r.await(t, func() string {
		for _, e := range r.events {
			if e.Reason == reason && strings.Contains(e.Object+" "+e.Message, text) {
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
	fmt.Fprintf(&b, "generation %d %s/%s %s %q digest %.15s", s.Observed.Generation, s.Observed.Sync, s.Observed.Health, s.Observed.Reason, s.Observed.Message, s.Observed.Digest)
	for _, o := range s.Objects {
		fmt.Fprintf(&b, "\n\t%s %s/%s %s %q", o.ObjectRef, o.Sync, o.Health, o.Reason, o.Message)
	}
	return b.String()
}

// hasReason reports whether an object of the status has a reason.
func hasReason(s engine.Status, reason fleet.Reason) bool {
	return slices.ContainsFunc(s.Objects, func(o fleet.ObjectStatus) bool { return o.Reason == reason })
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
