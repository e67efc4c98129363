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
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// target reconciles one target. Others post to its inbox; everything else belongs to the goroutine of run.
type target struct {
	engine *Engine
	id     fleet.TargetID
	log    *slog.Logger
	wake   wait.Signal

	mu    sync.Mutex
	inbox inbox

	work     work
	inv      inventoryState
	objects  map[inventory.Key]*object
	order    []*object // by step, then by key
	unswept  bool      // the order has objects that are forgotten
	inflight int
	now      time.Time // of this pass: a later due time is waited for
	lastPass time.Time
	// awaitsNamespaces: a namespace was missing, and is or was waited for.
	awaitsNamespaces bool
	claimsSeen       int // claims.releaseCount before it was decided what is deleted
	cache            cache
	end              end
	stopped          stopped
	out              outbox
}

// work is the desired state that a target works on.
type work struct {
	ctx     context.Context // ends when something newer arrives; nil before the first begin
	begun   time.Time
	desired engine.Desired // without its objects
	whole   bool           // it came with its objects
	invalid fleet.Cause    // why it cannot be worked on at all; zero when it can
	owner   kube.Owner
	client  *kube.Client // with the rights that the deployment is applied with
	// offlineCopy is closed when desired is kept for when the server is away; nil before that was asked for.
	offlineCopy <-chan struct{}
}

// cache is what a target derives from its objects, or has found out about the cluster, and keeps for a pass or a version.
type cache struct {
	barrier     *object         // the first object that later waves wait for; nil when nothing does
	lookups     map[string]bool // kinds that are being looked up
	leaving     []*object       // as plan has last listed them
	uids        uids
	uncheckable map[kube.KindNamespace]bool // no list tells which objects exist, so each one is read
	fields      map[string][]byte           // own fields, which many objects share: kept once
}

// end is how a target ended.
type end struct {
	done        bool // the tombstone was carried out, or every object was released
	noInventory bool // there was no inventory to tell which objects
	released    []release
	detached    []fleet.ObjectStatus
}

// stopped is why a target does nothing any more, until something newer is desired.
type stopped struct {
	newerReplica bool           // another replica of the agent works on a newer version
	successor    fleet.TargetID // another target of the same deployment has replaced this one
}

// any reports whether the target does nothing any more.
func (s stopped) any() bool { return s.newerReplica || s.successor != "" }

// inbox is what others have posted.
type inbox struct {
	newest         fleet.Version
	minVersion     fleet.Version
	accepted       bool
	digest         string
	desired        *engine.Desired
	cancel         context.CancelFunc
	results        []func()
	observed       map[inventory.Key]watch.Observation
	groups         []string // whose kinds have changed
	namespaces     []string // that exist now
	reconsider     bool
	claimsReleased bool // a claim of others was released
	successor      fleet.TargetID
	wasSuperseded  bool // since the last begin
}

func newTarget(e *Engine, id fleet.TargetID, held fleet.Version) *target {
	return &target{
		engine: e, id: id, log: e.log.With("target", string(id)), wake: wait.NewSignal(),
		inbox:   inbox{minVersion: held, observed: map[inventory.Key]watch.Observation{}},
		objects: map[inventory.Key]*object{}, cache: cache{lookups: map[string]bool{}, fields: map[string][]byte{}},
	}
}

// accept takes a desired state unless it is older than the newest one, and cancels the work on the state that it
// replaces.
func (t *target) accept(d engine.Desired) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := &t.inbox
	if d.State.Compare(in.minVersion) < 0 || in.accepted && d.State.Compare(in.newest) < 0 {
		t.log.Warn("ignoring a state that is older than the one at hand", "epoch", d.State.Epoch, "generation", d.State.Generation)
		return false
	}
	if in.accepted && d.State.Version == in.newest && d.State.Digest == in.digest {
		return false
	}
	in.accepted, in.newest, in.digest, in.desired, in.successor = true, d.State.Version, d.State.Digest, &d, ""
	if in.cancel != nil {
		in.cancel()
	}
	return true
}

// supersede ends the work until something newer of this target is desired.
func (t *target) supersede(by fleet.TargetID) {
	t.post(func(in *inbox) {
		in.successor, in.wasSuperseded = by, true
		if in.cancel != nil {
			in.cancel()
		}
	})
}

// signal wakes the goroutine. Several signals make one.
func (t *target) signal() {
	t.wake.Set()
}

func (t *target) post(word func(*inbox)) {
	t.mu.Lock()
	word(&t.inbox)
	t.mu.Unlock()
	t.signal()
}

// Observe implements [watch.Observer].
func (t *target) Observe(key inventory.Key, seen watch.Observation) {
	t.post(func(in *inbox) { in.observed[key] = in.observed[key].Then(seen) })
}

// KindsChanged implements [watch.KindWaiter].
func (t *target) KindsChanged(group string) {
	t.post(func(in *inbox) { in.groups = append(in.groups, group) })
}

// NamespaceExists implements [watch.NamespaceWaiter].
func (t *target) NamespaceExists(name string) {
	t.post(func(in *inbox) { in.namespaces = append(in.namespaces, name) })
}

// reconsider makes everything that failed due.
func (t *target) reconsider() {
	t.post(func(in *inbox) { in.reconsider = true })
}

// run is the goroutine of a target.
func (t *target) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.now = time.Now()
		next := t.drainInbox()
		if next != nil && t.inflight == 0 && !t.inv.running && t.engine.config().known() {
			t.begin(ctx, next)
		}
		pause := t.passDelay()
		if pause <= 0 {
			t.advance()
			t.diagnose()
			t.awaitNamespaces()
			t.report()
			if t.finished() && t.engine.retire(t, deletedTarget{t.work.desired.State.Version, t.out.sent.Observed.Sync}) {
				return
			}
			t.lastPass, pause = t.now, t.untilDue()
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

// A pass goes over every object. A target with many objects and enough requests under way collects some results and
// observations before the next pass: otherwise the work would grow with the square of its size.
const (
	largeTarget  = 256
	passInterval = 20 * time.Millisecond
)

// maxInflight is how many requests of a target may be under way or wait for a slot. A target with many objects has more
// of them, so that there are fewer passes.
func (t *target) maxInflight() int {
	if len(t.order) < largeTarget {
		return kube.Parallelism
	}
	return 4 * kube.Parallelism
}

// passDelay is how long the next pass may wait; 0 or less when it may not.
func (t *target) passDelay() time.Duration {
	if len(t.order) < largeTarget || t.inflight <= t.maxInflight()/2 {
		return 0
	}
	return passInterval - t.now.Sub(t.lastPass)
}

// finished reports whether nothing is left of the target, and that was reported.
func (t *target) finished() bool {
	last := t.out.sent.Observed
	return t.end.done && t.inflight == 0 && !t.inv.running && t.out.reported && last.Version == t.work.desired.State.Version &&
		(last.Sync == fleet.SyncDeleted || last.Sync == fleet.SyncDetached)
}

// hasNext reports whether a state was accepted that is not begun yet.
func (t *target) hasNext() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inbox.desired != nil
}

// drainInbox handles everything in the inbox and returns the next desired state, which stays in the inbox until begin.
func (t *target) drainInbox() *engine.Desired {
	t.mu.Lock()
	results, seen, groups, reconsider, freed := t.inbox.results, t.inbox.observed, t.inbox.groups, t.inbox.reconsider, t.inbox.claimsReleased
	namespaces := t.inbox.namespaces
	t.inbox.namespaces = nil
	t.inbox.results, t.inbox.groups, t.inbox.reconsider, t.inbox.claimsReleased = nil, nil, false, false
	t.inbox.observed = map[inventory.Key]watch.Observation{}
	next := t.inbox.desired
	t.stopped.successor = t.inbox.successor
	t.mu.Unlock()
	for _, result := range results {
		result()
	}
	for key, observation := range seen {
		if o := t.objects[key]; o != nil && t.stopped.successor == "" {
			t.handleObservation(o, observation)
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
		t.retryWaiting()
	}
	return next
}

// start runs a request beside the goroutine, and the function that it returns on the goroutine. The request has to
// respect ctx, which ends when something newer arrives.
func (t *target) start(work func(ctx context.Context) (done func())) {
	t.inflight++
	ctx := t.work.ctx
	t.engine.work.Go(func() {
		release := t.engine.client.Slot(ctx)
		done := work(ctx)
		release()
		t.post(func(in *inbox) {
			in.results = append(in.results, func() { t.inflight--; done() })
		})
	})
}

// sort updates the order and the steps after a change of the objects.
func (t *target) sort() {
	t.order, t.unswept = slices.AppendSeq(t.order[:0], maps.Values(t.objects)), false
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

// forget drops an object. It stays in the order until sweep, which has to run before the next pass over all objects.
func (t *target) forget(o *object) {
	o.endDiagnosis()
	t.engine.finishes.set(o.key(), t.id, finish{})
	if o.kind.resolved {
		t.engine.watchers.objects.Remove(o.kind.mapping, o.ref, t)
	}
	if t.objects[o.key()] == o {
		delete(t.objects, o.key())
	}
	o.forgotten, t.unswept = true, true
	t.inv.dirty = t.inv.dirty || o.record.listed
}

// sweep removes forgotten objects from the order, all at once: many are forgotten together when a large target is
// deleted.
func (t *target) sweep() {
	if t.unswept {
		t.order = slices.DeleteFunc(t.order, func(o *object) bool { return o.forgotten })
		t.unswept = false
	}
}
