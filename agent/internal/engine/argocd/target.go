package argocd

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	mu      sync.Mutex
	desired *engine.Desired // the newest; nil before Set
	minimum fleet.Version   // of the Application that was recovered
	succession
	requests

	// waitsForOthers: it is woken by changes of other targets too. refused: its newest state may not be applied here.
	waitsForOthers, refused atomic.Bool

	// The rest belongs to the goroutine of run.
	work *engine.Desired // the state that this pass is about
	schedules
	repositoryWrites int // number of changes of the Secret of the repository that this target knows
	kinds            comparedKinds
	history
	last     engine.Status
	reported bool
	known    bool // the Application was seen, so that its absence is news
	looked   bool // for an Application of the target that an earlier agent had
}

// schedules are when a target acts without an event.
type schedules struct {
	failures   wait.Backoff // of writes
	syncs      wait.Backoff // of failed syncs and comparisons
	due        time.Time    // of the next attempt without an event; zero when there is none
	syncDue    time.Time    // before it, no failed sync is started again
	notStarted time.Time    // when a request was seen first that Argo CD had not taken, or when it was reminded of it
	remindAt   time.Time    // of the next reminder
	reminders  wait.Backoff
}

// succession is what became of a target when another one of its deployment came.
type succession struct {
	successor fleet.TargetID // the later target; "" when this one is the last
	lookAgain bool           // the Application may be with another target now
}

// requests are what users have requested, besides the desired state.
type requests struct {
	retryNow bool
	// resync is a version that differs from the one before in nothing but its number, which requests a sync; zero when
	// there is none that has yet to be written.
	resync fleet.Version
}

// history is what a target has reported or requested, for events.
type history struct {
	pruned  map[string]bool // objects that were given to Argo CD for deletion, by name
	handing map[string]bool // objects that wait for another deployment, by name
	drifted map[string]bool // objects that differ from the source after a successful sync, by name
	synced  fleet.Version   // the version of the last Synced event
	// lastHeal is the last sync that Argo CD has started by itself to correct drift.
	lastHeal string
	heldFor  fleet.Version // the version of the last PruneHeld event
	// keepsAtEnd are the objects that stayed when the deletion of the others was requested.
	keepsAtEnd []fleet.ObjectStatus
}

func newTarget(e *Engine, id fleet.TargetID, minimum fleet.Version) *target {
	return &target{engine: e, id: id, wake: wait.NewSignal(), minimum: minimum, history: history{pruned: map[string]bool{}, handing: map[string]bool{}, drifted: map[string]bool{}}}
}

// accept takes a desired state unless it is older than the newest one or than the Application, or equal to the newest one.
// It reports whether it has taken it.
func (t *target) accept(d engine.Desired) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.State.Compare(t.minimum) < 0 || t.desired != nil && d.State.Compare(t.desired.State.Version) < 0 {
		t.engine.log.Warn("ignoring a state that is older than the one at hand", obs.KeyTarget, string(t.id), obs.KeyGeneration, d.State.Generation)
		return false
	}
	if t.desired != nil && reflect.DeepEqual(t.desired.State, d.State) && reflect.DeepEqual(t.desired.Source, d.Source) {
		return false
	}
	if t.desired == nil || t.desired.State.Version == t.resync || onlyNewer(*t.desired, d) {
		t.resync = d.State.Version
	}
	t.desired, t.successor = &d, ""
	t.wake.Set()
	return true
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
	if t.lookAgain {
		t.looked, t.lookAgain = false, false
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
	if by := t.supersededBy(); by != "" {
		t.report(nil, outcome{status: rewound(by)})
		return false
	}
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
	if app != nil && out.err == nil && !out.ended && out.status.Observed.Reason != fleet.ReasonNewerReplica {
		out.err = t.remind(ctx)
	}
	t.schedule(&out)
	t.known = app != nil || out.created
	t.report(app, out)
	return out.ended
}

// remind has Argo CD look at an Application again whose operation it has not started, or that it has not compared again. Argo CD
// can miss the request if it writes the status of the Application at the same time, and would see it at its next periodic
// refresh. The delay is a backstop.
func (t *target) remind(ctx context.Context) error {
	app, _, _ := t.engine.cache.ofTarget(t.id)
	if app == nil || !app.requested() && app.annotation(annotationRefresh) == "" {
		t.notStarted, t.remindAt = time.Time{}, time.Time{}
		t.reminders.Reset()
		return nil
	}
	if t.notStarted.IsZero() {
		t.notStarted = time.Now()
	}
	if t.remindAt.IsZero() {
		t.remindAt = t.notStarted.Add(t.reminders.NextJittered(startGrace, maxReminder))
	}
	if time.Now().Before(t.remindAt) {
		t.at(t.remindAt)
		return nil
	}
	if err := t.annotate(ctx, app, map[string]string{annotationReminded: time.Now().UTC().Format(time.RFC3339)}); err != nil {
		return fmt.Errorf("reminding Argo CD of a request: %w", err)
	}
	t.notStarted, t.remindAt = time.Now(), time.Time{}
	t.wake.Set() // plans the next one
	return nil
}

// annotate writes annotations into the Application. The write fails if somebody has changed the Application since it was
// read.
func (t *target) annotate(ctx context.Context, app *application, values map[string]string) error {
	next := app.raw.DeepCopy()
	setAnnotations(next, values)
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err == nil {
		t.engine.cache.stored(0, written)
	}
	return err
}

// startGrace is how long Argo CD may take to start an operation or a comparison before the first reminder, and maxReminder the longest time
// between two of them.
const (
	startGrace  = 10 * time.Second
	maxReminder = 3 * time.Minute
)

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
