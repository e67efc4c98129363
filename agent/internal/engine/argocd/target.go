package argocd

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// target is one target. Its goroutine runs a pass for each event: it reads the Application from the cache, makes at most
// one write, and reports. The result of a write arrives as the next event.
type target struct {
	engine *Engine
	id     fleet.TargetID
	wake   wait.Signal

	mu       sync.Mutex
	desired  *engine.Desired // the newest; nil before Set
	minimum  fleet.Version   // of the Application that was recovered
	retryNow bool

	waitsForOthers atomic.Bool // it is woken by the Applications of other targets too

	// The rest belongs to the goroutine of run.
	work             *engine.Desired // the state that this pass is about
	failures         wait.Backoff    // of writes
	syncs            wait.Backoff    // of failed syncs and comparisons
	due              time.Time       // of the next attempt without an event; zero when there is none
	syncDue          time.Time       // before it, no failed sync is started again
	repositoryWrites int             // number of changes of the Secret of the repository that this target knows
	kinds            comparedKinds
	history
	last     engine.Status
	reported bool
	known    bool // the Application was seen, so that its absence is news
	looked   bool // for an Application of the target that an earlier agent had
}

// history is what a target has reported or requested, for events.
type history struct {
	pruned  map[string]bool // objects that were given to Argo CD for deletion, by name
	drifted map[string]bool // objects that differ from the source after a successful sync, by name
	synced  fleet.Version   // the version of the last Synced event
	heldFor fleet.Version   // the version of the last PruneHeld event
}

func newTarget(e *Engine, id fleet.TargetID, minimum fleet.Version) *target {
	return &target{engine: e, id: id, wake: wait.NewSignal(), minimum: minimum, history: history{pruned: map[string]bool{}, drifted: map[string]bool{}}}
}

// accept takes a desired state unless it is older than the newest one or than the Application.
func (t *target) accept(d engine.Desired) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.State.Compare(t.minimum) < 0 || t.desired != nil && d.State.Compare(t.desired.State.Version) < 0 {
		t.engine.log.Warn("ignoring a state that is older than the one at hand", obs.KeyTarget, string(t.id), obs.KeyGeneration, d.State.Generation)
		return
	}
	if t.desired != nil && reflect.DeepEqual(t.desired.State, d.State) && reflect.DeepEqual(t.desired.Source, d.Source) {
		return
	}
	t.desired = &d
	t.wake.Set()
}

func (t *target) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryNow = true
	t.wake.Set()
}

// newest returns the newest desired state; nil before Set.
func (t *target) newest() *engine.Desired {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.desired
}

func (t *target) hasNewer(v fleet.Version) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.desired != nil && t.desired.State.Compare(v) > 0
}

// next returns the newest desired state, and resets the delays if it is new or a retry was requested.
func (t *target) next() *engine.Desired {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.desired != t.work || t.retryNow {
		t.failures.Reset()
		t.syncs.Reset()
		t.due, t.syncDue, t.retryNow = time.Time{}, time.Time{}, false
	}
	return t.desired
}

// run is the goroutine of the target.
func (t *target) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if t.work = t.next(); t.work != nil {
			if ended := t.pass(ctx); ended && t.engine.retire(t, t.last) {
				return
			}
		}
		pause := time.Hour
		if !t.due.IsZero() {
			pause = max(0, time.Until(t.due))
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
			t.due = time.Time{}
		}
	}
}

// pass makes the next step towards the desired state, and reports. It returns true when the target has ended.
func (t *target) pass(life context.Context) (ended bool) {
	ctx, cancel := context.WithTimeout(life, t.engine.timing.request)
	defer cancel()
	app, ready, failure := t.engine.cache.ofTarget(t.id)
	if !ready {
		if failure != nil {
			t.report(app, t.unavailable(failure))
		}
		return false
	}
	var out outcome
	switch state := t.work.State; {
	case app == nil && t.unclaimed(ctx, &out):
	case app != nil && app.version().Compare(state.Version) > 0:
		out.status = failed(fleet.Cause{Reason: fleet.ReasonNewerReplica, Message: "another replica of this agent works on a newer version"})
	case state.Detached:
		out = t.detach(ctx, app)
	case state.Tombstone:
		out = t.delete(ctx, app)
	default:
		out = t.apply(ctx, app)
	}
	if life.Err() != nil {
		return false // the engine stops
	}
	t.schedule(&out)
	t.known = app != nil || out.created
	t.report(app, out)
	return out.ended
}

// outcome is the result of a pass.
type outcome struct {
	status  engine.Status // without version and time
	err     error         // of a write; the pass is repeated
	created bool
	ended   bool
}

// schedule plans the next pass after a failed write. A conflict means that the cache was old: the watch reports the newer
// object, and the delay is a backstop.
func (t *target) schedule(out *outcome) {
	if out.err == nil {
		if t.due.IsZero() || time.Now().After(t.due) {
			t.failures.Reset()
		}
		return
	}
	t.at(time.Now().Add(t.failures.NextJittered(t.engine.timing.retryFirst, t.engine.timing.retryMax)))
}

// at plans a pass.
func (t *target) at(when time.Time) {
	if t.due.IsZero() || when.Before(t.due) {
		t.due = when
	}
}
