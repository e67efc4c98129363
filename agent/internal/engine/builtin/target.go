package builtin

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/backoff"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// target makes one target true. Others leave word in its inbox; everything else belongs to the
// goroutine of run.
type target struct {
	engine *Engine
	id     fleet.TargetID
	log    *slog.Logger
	wake   chan struct{}

	mu    sync.Mutex
	inbox inbox

	book     *inventory.Book // nil before the first begin
	desired  engine.Desired  // without its objects
	whole    bool            // it came with them
	owner    kube.Owner
	cluster  *kube.Client    // with the rights that the deployment is applied with
	ctx      context.Context // of the work on desired; ends when something newer arrives
	begun    time.Time
	now      time.Time // of this round: what is due after it is waited for
	turned   time.Time // when the last round was
	objects  map[inventory.Key]*object
	order    []*object // by step, then by key
	litter   bool      // some of them are forgotten
	barrier  *object   // the first that later waves wait for; nil when nothing does
	invalid  string    // why the desired state cannot be worked on at all
	inflight int
	lookups  map[string]bool // kinds being asked for
	dirty    bool            // the inventory is to be written
	homeless bool            // a namespace was missing, and is or was waited for
	lapse    time.Time       // it lags behind what was healed, and is to be written then; zero when it does not
	digest   string          // applied whole
	base     int             // objects that were in place before the change that is not decided on yet
	leavers  []*object       // as plan has last listed them
	uids     uids
	dropped  int                         // claims.dropped before it was decided what goes
	unlisted map[kube.KindNamespace]bool // no list says what is there, so that each object is looked at
	shapes   map[string][]byte           // fields of ours, as many objects have them: kept once
	released []release                   // kept when a tombstone was carried out
	parted   []fleet.ObjectStatus        // let go of, because the target is detached
	gone     bool                        // the tombstone was carried out, or everything was let go of
	lost     bool                        // and there was no inventory to tell what that was
	ousted   bool                        // another replica of the agent is ahead: nothing is done any more
	heir     fleet.TargetID              // has come in the place of this target: nothing is done any more
	keeping  <-chan struct{}             // closed when desired was kept; nil before that was asked for
	saving   saving
	out      outbox
}

// inbox is what others have left. The newest counts.
type inbox struct {
	newest     fleet.Version
	held       fleet.Version
	accepted   bool
	digest     string
	desired    *engine.Desired
	cancel     context.CancelFunc
	results    []func()
	seen       map[inventory.Key]watch.Observation
	groups     []string // whose kinds have changed
	namespaces []string // that exist now
	reconsider bool
	freed      bool // others claim less
	heir       fleet.TargetID
	strayed    bool // it had an heir since the last begin
}

// saving is how writing the inventory goes.
type saving struct {
	failure string
	backoff backoff.Backoff
	due     time.Time
}

func newTarget(e *Engine, id fleet.TargetID, held fleet.Version) *target {
	return &target{
		engine: e, id: id, log: e.log.With("target", string(id)), wake: make(chan struct{}, 1),
		inbox:   inbox{held: held, seen: map[inventory.Key]watch.Observation{}},
		objects: map[inventory.Key]*object{}, lookups: map[string]bool{}, shapes: map[string][]byte{},
	}
}

// accept takes d if it is not older than what is held, and ends the work on what it replaces.
func (t *target) accept(d engine.Desired) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := &t.inbox
	if d.State.Compare(in.held) < 0 || in.accepted && d.State.Compare(in.newest) < 0 {
		t.log.Warn("ignoring a state that is older than the one at hand", "epoch", d.State.Epoch, "generation", d.State.Generation)
		return false
	}
	if in.accepted && d.State.Version == in.newest && d.State.Digest == in.digest {
		return false
	}
	in.accepted, in.newest, in.digest, in.desired, in.heir = true, d.State.Version, d.State.Digest, &d, ""
	if in.cancel != nil {
		in.cancel()
	}
	return true
}

// supersede ends the work, until something newer of this very target is desired.
func (t *target) supersede(by fleet.TargetID) {
	t.leave(func(in *inbox) {
		in.heir, in.strayed = by, true
		if in.cancel != nil {
			in.cancel()
		}
	})
}

// signal wakes the goroutine; many signals make one.
func (t *target) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *target) leave(word func(*inbox)) {
	t.mu.Lock()
	word(&t.inbox)
	t.mu.Unlock()
	t.signal()
}

// Observe implements [watch.Observer].
func (t *target) Observe(key inventory.Key, seen watch.Observation) {
	t.leave(func(in *inbox) { in.seen[key] = in.seen[key].Then(seen) })
}

// KindsChanged implements [watch.KindWaiter].
func (t *target) KindsChanged(group string) {
	t.leave(func(in *inbox) { in.groups = append(in.groups, group) })
}

// NamespaceExists implements [watch.NamespaceWaiter].
func (t *target) NamespaceExists(name string) {
	t.leave(func(in *inbox) { in.namespaces = append(in.namespaces, name) })
}

// reconsider makes everything that failed due.
func (t *target) reconsider() {
	t.leave(func(in *inbox) { in.reconsider = true })
}

// run is the life of a target.
func (t *target) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.now = time.Now()
		next := t.takeIn()
		if next != nil && t.inflight == 0 && t.engine.config().known() {
			t.begin(ctx, next)
		}
		pause := t.busy()
		if pause <= 0 {
			t.advance()
			t.diagnose()
			t.awaitNamespaces()
			t.report()
			if t.finished() && t.engine.retire(t, grave{t.desired.State.Version, t.out.sent.Observed.Sync}) {
				return
			}
			t.turned, pause = t.now, t.untilDue()
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// A round looks at every object. A target with many that has enough requests under way lets some answers and
// sightings come together before the next one: else the work grew with the square of its size.
const (
	largeTarget = 256
	roundEvery  = 20 * time.Millisecond
)

// places is how many requests of a target may wait for their turn among those at once. One with many objects
// has more of them in line, so that there are fewer rounds.
func (t *target) places() int {
	if len(t.order) < largeTarget {
		return kube.Parallelism
	}
	return 4 * kube.Parallelism
}

// busy is how long the next round may wait; 0 or less when it may not.
func (t *target) busy() time.Duration {
	if len(t.order) < largeTarget || t.inflight <= t.places()/2 {
		return 0
	}
	return roundEvery - t.now.Sub(t.turned)
}

// finished reports whether there is nothing left of the target, and that was told.
func (t *target) finished() bool {
	last := t.out.sent.Observed
	return t.gone && t.inflight == 0 && t.out.said && last.Version == t.desired.State.Version &&
		(last.Sync == fleet.SyncDeleted || last.Sync == fleet.SyncDetached)
}

// hasNext reports whether something was accepted that is not begun yet.
func (t *target) hasNext() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inbox.desired != nil
}

// takeIn works through the inbox and returns what is desired anew, which stays there until begin.
func (t *target) takeIn() *engine.Desired {
	t.mu.Lock()
	results, seen, groups, reconsider, freed := t.inbox.results, t.inbox.seen, t.inbox.groups, t.inbox.reconsider, t.inbox.freed
	namespaces := t.inbox.namespaces
	t.inbox.namespaces = nil
	t.inbox.results, t.inbox.groups, t.inbox.reconsider, t.inbox.freed = nil, nil, false, false
	t.inbox.seen = map[inventory.Key]watch.Observation{}
	next := t.inbox.desired
	t.heir = t.inbox.heir
	t.mu.Unlock()
	for _, result := range results {
		result()
	}
	for key, observation := range seen {
		if o := t.objects[key]; o != nil && t.heir == "" {
			t.see(o, observation)
		}
	}
	for _, group := range groups {
		t.retryKinds(group)
	}
	for _, name := range namespaces {
		t.retryNamespace(name)
	}
	t.sweep()
	if reconsider {
		t.retryAll()
	}
	if freed {
		t.retryPostponed()
	}
	return next
}

// start runs work beside the goroutine, and what it returns on the goroutine. The work has to
// heed ctx, which ends when something newer arrives.
func (t *target) start(work func(ctx context.Context) (done func())) {
	t.inflight++
	ctx := t.ctx
	t.engine.work.Go(func() {
		release := t.engine.cluster.Slot(ctx)
		done := work(ctx)
		release()
		t.leave(func(in *inbox) {
			in.results = append(in.results, func() { t.inflight--; done() })
		})
	})
}

// sort brings steps and order in line with objects.
func (t *target) sort() {
	t.order, t.litter = slices.AppendSeq(t.order[:0], maps.Values(t.objects)), false
	slices.SortFunc(t.order, func(a, b *object) int {
		return cmp.Or(a.position.Compare(b.position), a.key().Compare(b.key()))
	})
	for i, o := range t.order {
		o.step = 0
		if i > 0 {
			o.step = t.order[i-1].step
			if o.position != t.order[i-1].position {
				o.step++
			}
		}
	}
}

// forget drops an object that is no longer of any concern. It stays in the order until sweep, which has to
// come before the next look over all objects.
func (t *target) forget(o *object) {
	o.endDiagnosis()
	t.engine.finishes.set(o.key(), t.id, finish{})
	if o.kind.resolved {
		t.engine.watches.Remove(o.kind.mapping, o.ref, t)
	}
	if t.objects[o.key()] == o {
		delete(t.objects, o.key())
	}
	o.forgotten, t.litter = true, true
	t.dirty = t.dirty || o.record.listed
}

// sweep takes what was forgotten out of the order, all at once: many are forgotten together when a large
// target is deleted.
func (t *target) sweep() {
	if t.litter {
		t.order = slices.DeleteFunc(t.order, func(o *object) bool { return o.forgotten })
		t.litter = false
	}
}
