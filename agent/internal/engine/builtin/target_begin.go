package builtin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wait"
)

// begin starts the work on a new desired state. No request is under way.
func (t *target) begin(ctx context.Context, next *engine.Desired) {
	t.loadInventory()
	if t.stopped.newerReplica {
		rec := t.inv.inventory.Record()
		t.inv.base = rec.Base
		t.addRecorded(rec) // what the other replica has applied meanwhile
		t.sort()
	}
	t.inv.base = t.nextBase()
	d := *next
	work, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	t.inbox.cancel = cancel
	strayed := t.inbox.wasSuperseded
	t.stopped.successor = t.inbox.successor
	t.inbox.wasSuperseded = t.stopped.successor != "" // superseded before it began: the next begin forgets the live state as well
	if t.inbox.desired == next {
		t.inbox.desired = nil
	} else {
		cancel() // replaced already; the next pass begins with the newer state
	}
	t.mu.Unlock()
	t.work.ctx, t.work.desired, t.work.begun, t.end.done, t.stopped.newerReplica = work, d, t.now, false, false
	if d.State.Detached {
		d.Objects = nil // every object is leaving
	}
	t.work.whole = d.Objects != nil
	clear(t.cache.fields)
	t.cache.uncheckable = map[kube.KindNamespace]bool{}
	t.end.noInventory = !t.work.whole && d.Source == nil && !t.inv.inventory.Exists()
	t.inv.dirty = t.inv.dirty || t.inv.inventory.Version() != d.State.Version
	t.work.owner = kube.Owner{
		Agent: t.engine.config().agent, Target: t.id,
		Deployment: d.Tenant + "/" + d.Deployment, Adopt: d.State.Policy.Adopt,
	}
	t.inv.failure, t.inv.backoff, t.inv.due = fleet.Cause{}, wait.Backoff{}, time.Time{}
	t.work.offlineCopy, t.end.released, t.end.detached, t.work.invalid = nil, nil, nil, fleet.Cause{}
	t.impersonate(d.State.Policy.ServiceAccount)
	if strayed {
		t.forgetLive()
	}
	if d.Source == nil {
		t.merge(d)
	} else {
		t.work.invalid = fleet.Cause{Reason: fleet.ReasonSourceUnsupported, Message: fmt.Sprintf(
			"this agent applies bundles and cannot fetch %s itself: have the server render it, or give the deployment an engine that reads Git in the cluster", d.Source.RepoURL)}
	}
	t.work.desired.Objects = nil // each object has its text
	t.sort()
	t.engine.gc.count(len(t.order))
}

// forgetLive forgets what is known about the live objects, since another target has worked on them.
func (t *target) forgetLive() {
	for _, o := range t.objects {
		o.live.known, o.record.applied, o.record.live = false, "", ""
	}
}

// loadInventory makes an object of each inventory entry, before the first begin.
func (t *target) loadInventory() {
	if t.inv.inventory != nil {
		return
	}
	t.inv.inventory = t.engine.takeInventory(t.id)
	rec := t.inv.inventory.Record()
	t.inv.digest, t.inv.base = rec.Digest, rec.Base
	t.addRecorded(rec)
	t.sort()
}

// addRecorded makes a leaving object of each inventory entry that has none, and adopts the holds that another replica
// has written.
func (t *target) addRecorded(rec inventory.Record) {
	for key, entry := range rec.Entries {
		switch o := t.objects[key]; {
		case o == nil:
			t.objects[key] = &object{
				ref: entry.ObjectRef, phase: phaseLeaving, leaving: &removal{},
				record: record{
					listed: true, applied: entry.Hash, live: entry.Live, fields: entry.Fields, uid: entry.UID, hold: entry.Held,
					keepAnnotation: entry.Keep, finished: entry.Finished,
				},
				position: manifest.Place{Wave: entry.Wave, Depth: entry.Depth, Rank: manifest.RankOf(entry.ObjectRef)},
			}
			t.holdLeaving(t.objects[key])
		case o.leaving != nil || t.stopped.newerReplica:
			o.record.hold = cmp.Or(o.record.hold, entry.Held)
		}
	}
}

// merge updates the objects to the desired state.
func (t *target) merge(d engine.Desired) {
	left := make(map[inventory.Key]*object, len(t.objects))
	for key, o := range t.objects {
		left[key] = o
	}
	if d.Objects != nil {
		objects := d.Objects.Objects()
		desired := make([]*object, 0, len(objects))
		for _, m := range objects {
			ref := manifest.Placed(m.Ref, d.State.Namespace)
			key := inventory.KeyOf(ref)
			o := t.objects[key]
			if o == nil {
				o = &object{ref: ref}
				t.objects[key] = o
			}
			delete(left, key)
			t.desire(o, ref, m)
			desired = append(desired, o)
		}
		t.arrange(desired, objects)
	}
	for _, o := range left {
		t.discard(o)
	}
}

// desire makes an object desired, with the manifest m.
func (t *target) desire(o *object, ref fleet.ObjectRef, m manifest.Object) {
	if o.ref != ref {
		// Another version of the group: the same object by another resource.
		t.unresolve(o)
		o.ref = ref
	}
	text := m.Text()
	o.spec.manifest, o.spec.hash, o.spec.optional = &text, text.Hash(), isOptional(m)
	t.configure(o, m)
	o.spec.keepAnnotation = kube.KeepAnnotationIn(m)
	if o.record.applied == o.spec.hash {
		o.record.keepAnnotation = o.spec.keepAnnotation
	}
	wasLeaving := o.leaving != nil
	o.retry, o.existence, o.leaving, o.record.hold = retryState{}, existenceCheck{}, nil, ""
	o.drift.healing, o.drift.delayed, o.drift.force = false, false, false
	inPlace := o.phase == phaseInPlace && o.record.applied == o.spec.hash && !t.restoredByVersion(o)
	if wasLeaving {
		o.live.known, o.health.cause = false, fleet.Cause{}
	}
	if o.kind.resolved && !t.refuse(o.ref, o.kind.mapping).IsZero() {
		t.unresolve(o) // it was allowed before; assignMapping fails it
	}
	o.preview, o.drift.renewed = fleet.Cause{}, !inPlace && t.renewed()
	switch {
	case !o.kind.resolved:
		t.restart(o, phaseResolve)
	case inPlace:
		o.retry.attempted = true
	case o.drift.deviates:
		t.restart(o, phaseApply)
		o.drift.force = o.record.applied == o.spec.hash
	default:
		t.restart(o, o.firstPhase())
	}
}

// firstPhase returns the first phase of a resolved, desired object: one that was applied before is verified.
func (o *object) firstPhase() phase {
	if o.record.applied == o.spec.hash && o.record.applied != "" && (o.record.uid != "" || o.record.finished != "") {
		o.mustRead = true
		return phaseVerify
	}
	return phaseApply
}

// discard makes an object leaving: it is not desired any more.
func (t *target) discard(o *object) {
	o.spec.manifest, o.spec.hash, o.retry.failure, o.retry.backoff, o.retry.due = nil, "", fleet.Cause{}, wait.Backoff{}, time.Time{}
	o.drift.healing, o.drift.delayed, o.drift.before = false, false, nil
	o.spec.needs, o.drift.deviates, o.drift.reported, o.preview, o.replaced = nil, false, fleet.Cause{}, fleet.Cause{}, ""
	if !o.record.listed {
		t.forget(o) // never applied
		return
	}
	if o.leaving == nil {
		o.leaving = &removal{}
	}
	o.leaving.cause, o.leaving.keptBy, o.leaving.bounds = fleet.Cause{}, fleet.Cause{}, bounds{}
	o.leaving.waits, o.leaving.confirmable = false, false
	t.holdLeaving(o)
	t.keepAnnotated(o)
	// An object that is being deleted already is checked again as well, since its timer was reset.
	t.restart(o, phaseLeaving)
}

// unresolve forgets the mapping of an object and its watch.
func (t *target) unresolve(o *object) {
	if o.kind.resolved {
		t.engine.watchers.objects.Remove(o.kind.mapping, o.ref, t)
		o.kind.resolved = false
	}
	o.mustRead, o.watch, o.reread.failure = false, watch.State{}, fleet.Cause{}
}
