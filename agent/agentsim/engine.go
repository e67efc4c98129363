package agentsim

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// fakeEngine is the engine of one agent process on a Cluster. It implements the contract of package engine like the builtin
// engine, but synchronously and without failed requests. It does not touch targets that it has not received since the
// process started. It prunes objects that have left a bundle, unless the policy, HoldPrune, the prune limit or a pending
// target prevents it. It hands objects over between targets. Of a deployment it works on the target that it received last.
// It has no dry runs, drift or timeouts.
//
// The lock of the cluster guards all fields.
type fakeEngine struct {
	cluster  *Cluster
	replica  string
	report   func(engine.Status)
	desired  map[fleet.TargetID]engine.Desired
	reported map[fleet.TargetID]engine.Status
	// superseded has the targets that another target of the same deployment has replaced, with their versions.
	superseded map[fleet.TargetID]fleet.Version
	pending    bool
}

func newFakeEngine(c *Cluster, replica string, report func(engine.Status)) *fakeEngine {
	return &fakeEngine{
		cluster: c, replica: replica, report: report, desired: map[fleet.TargetID]engine.Desired{},
		reported: map[fleet.TargetID]engine.Status{}, superseded: map[fleet.TargetID]fleet.Version{},
	}
}

// Set implements link.Engine.
func (e *fakeEngine) Set(d engine.Desired) {
	e.cluster.mu.Lock()
	defer e.cluster.mu.Unlock()
	current := e.desired[d.Target].State.Version
	if inv := e.cluster.inventories[d.Target]; inv != nil && inv.version.Compare(current) > 0 {
		current = inv.version
	}
	if d.State.Compare(current) < 0 {
		e.notify(EventIgnored, d, Object{})
		return
	}
	if was, ok := e.desired[d.Target]; ok && was.State.Version == d.State.Version && was.State.Digest == d.State.Digest {
		return
	}
	if last, ok := e.superseded[d.Target]; ok && d.State.Compare(last) <= 0 {
		return // the target is superseded
	}
	e.supersede(d)
	e.desired[d.Target] = d
	e.notify(EventAccepted, d, Object{})
	e.reconcileAll()
}

// supersede stops the work on another target of the same deployment. The server has only one target of a deployment on an
// agent, so that the other one does not exist any more, unless a newer state of it arrives.
func (e *fakeEngine) supersede(d engine.Desired) {
	delete(e.superseded, d.Target)
	if d.Objects == nil {
		return
	}
	for id, other := range e.desired {
		if id == d.Target || other.Objects == nil || other.Tenant != d.Tenant || other.Deployment != d.Deployment {
			continue
		}
		e.superseded[id] = other.State.Version
		e.reportStatus(engine.Status{Target: id, Observed: fleet.Observed{
			Version: other.State.Version, Digest: e.cluster.inventoryLocked(id).digest, Sync: fleet.SyncRewound, Health: fleet.HealthUnknown,
			Message: fmt.Sprintf("replaced by target %s of the same deployment", d.Target),
		}})
		delete(e.desired, id)
		delete(e.reported, id)
	}
}

// Pending implements link.Engine.
func (e *fakeEngine) Pending(n int) {
	e.cluster.mu.Lock()
	defer e.cluster.mu.Unlock()
	e.pending = n > 0
	e.reconcileAll()
}

// reconcileAll reconciles all targets until nothing changes: an object that one target no longer has may be what another one
// waits for.
func (e *fakeEngine) reconcileAll() {
	for again := true; again; {
		again = false
		for _, id := range slices.Sorted(maps.Keys(e.desired)) {
			if e.reportStatus(e.reconcile(e.desired[id])) {
				again = true
			}
		}
	}
}

// reportStatus reports a status if it has changed, and returns whether it has.
func (e *fakeEngine) reportStatus(s engine.Status) bool {
	if was, ok := e.reported[s.Target]; ok && reflect.DeepEqual(was, s) {
		return false
	}
	e.reported[s.Target] = s
	s.Observed.AsOf = time.Now()
	e.report(s)
	if s.Observed.Sync == fleet.SyncDeleted || s.Observed.Sync == fleet.SyncDetached {
		delete(e.desired, s.Target)
		delete(e.reported, s.Target)
	}
	return true
}

// reconcile reconciles one target as far as possible.
func (e *fakeEngine) reconcile(d engine.Desired) engine.Status {
	s := engine.Status{Target: d.Target, Observed: fleet.Observed{Version: d.State.Version, Health: fleet.HealthCurrent}}
	switch {
	case d.State.Tombstone:
		s.Observed.Sync, s.Observed.Message = e.removeAll(d, fleet.SyncDeleted, e.deleteObject)
	case d.State.Detached:
		s.Observed.Sync, s.Observed.Message = e.removeAll(d, fleet.SyncDetached, e.detachObject)
	default:
		e.apply(d, &s)
	}
	return s
}

// removeAll removes or detaches all objects of a target, and then its inventory.
func (e *fakeEngine) removeAll(d engine.Desired, done fleet.SyncState, removeOne func(engine.Desired, objectKey) bool) (fleet.SyncState, string) {
	inv := e.cluster.inventories[d.Target]
	if inv == nil {
		return done, "the target has no inventory: nothing was done"
	}
	inv.version, inv.digest = d.State.Version, ""
	for _, key := range sortedKeys(inv.entries) {
		if removeOne(d, key) {
			delete(inv.entries, key)
		}
	}
	if len(inv.entries) > 0 {
		return fleet.SyncSyncing, "other targets of this agent are pending"
	}
	delete(e.cluster.inventories, d.Target)
	return done, ""
}

// deleteObject deletes an object of a target unless it has to stay for now. It reports whether the target can forget it.
func (e *fakeEngine) deleteObject(d engine.Desired, key objectKey) bool {
	o, ok := e.cluster.objects[key]
	if !ok || o.Target != d.Target {
		return true // it does not exist, or was handed over
	}
	if e.pending || e.desiredByOther(key, d.Target) || isHandedOver(d, o.ObjectRef) {
		return false
	}
	delete(e.cluster.objects, key)
	e.notify(EventDeleted, d, o)
	return true
}

// detachObject removes the owner of an object. The object stays.
func (e *fakeEngine) detachObject(d engine.Desired, key objectKey) bool {
	o, ok := e.cluster.objects[key]
	if !ok || o.Target != d.Target {
		return true
	}
	if e.pending || e.desiredByOther(key, d.Target) || isHandedOver(d, o.ObjectRef) {
		return false
	}
	o.Target = ""
	e.cluster.objects[key] = o
	e.notify(EventDetached, d, o)
	return true
}

// apply applies the objects of a target and prunes those that have left its bundle.
func (e *fakeEngine) apply(d engine.Desired, s *engine.Status) {
	inv := e.cluster.inventoryLocked(d.Target)
	inv.version = d.State.Version
	wanted, failure := map[objectKey]bool{}, ""
	for _, m := range d.Objects.Objects() {
		ref := manifest.Placed(m.Ref, d.State.Namespace)
		key := keyOf(ref)
		wanted[key] = true
		status := fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		if reason := e.refusal(d, key); reason != "" {
			status.Sync, status.Health, status.Message = fleet.SyncFailed, fleet.HealthUnknown, reason
			failure = ref.String() + ": " + reason
		} else {
			inv.entries[key] = ref
			delete(inv.keptAt, key)
			delete(inv.unconfirmed, key)
			e.cluster.objects[key] = Object{
				ObjectRef: ref, Target: d.Target, Deployment: d.Tenant + "/" + d.Deployment, Content: m.Content,
			}
		}
		s.Objects = append(s.Objects, status)
	}
	s.Observed.Sync, s.Observed.Message = fleet.SyncSynced, ""
	if failure == "" {
		inv.digest = d.State.Digest
	} else {
		s.Observed.Sync, s.Observed.Health, s.Observed.Message = fleet.SyncFailed, fleet.HealthUnknown, failure
	}
	s.Observed.Digest = inv.digest
	e.prune(d, inv, wanted, failure != "", s)
	slices.SortFunc(s.Objects, func(a, b fleet.ObjectStatus) int { return compareKeys(keyOf(a.ObjectRef), keyOf(b.ObjectRef)) })
}

// prune deletes the objects that have left the bundle, or reports reason they stay.
func (e *fakeEngine) prune(d engine.Desired, inv *inventory, wanted map[objectKey]bool, failed bool, s *engine.Status) {
	reason := ""
	switch {
	case len(wanted) == 0 && !d.State.Policy.AllowEmpty:
		reason = "the bundle is empty and allowEmpty is not set"
	case failed:
		reason = "nothing is pruned while objects fail to apply"
	case !d.State.Policy.Prune:
		reason = "pruning is disabled for this deployment"
	}
	exceedsLimit := inv.exceedsLimit(d.State, wanted)
	for _, key := range sortedKeys(inv.entries) {
		if wanted[key] {
			continue
		}
		if d.State.HoldPrune {
			inv.unconfirmed[key] = true // also for later versions
		}
		needsConfirmation := reason == "" && !e.pending && (d.State.HoldPrune || inv.needsConfirmation(d.State, key, exceedsLimit))
		if reason == "" && !needsConfirmation && e.deleteObject(d, key) {
			inv.forget(key)
			continue
		}
		left := fleet.ObjectStatus{ObjectRef: inv.entries[key], Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		switch {
		case needsConfirmation:
			left.Sync, left.Message = fleet.SyncHeld, "is no longer in the bundle; kept until its deletion is confirmed"
			if s.Observed.Sync == fleet.SyncSynced {
				s.Observed.Sync = fleet.SyncOutOfSync
			}
		case reason == "":
			left.Sync, left.Message = fleet.SyncSyncing, "is no longer in the bundle; kept for now"
			if s.Observed.Sync == fleet.SyncSynced || s.Observed.Sync == fleet.SyncOutOfSync {
				s.Observed.Sync = fleet.SyncSyncing
			}
		default:
			left.Message = "is no longer in the bundle; kept: " + reason
		}
		s.Objects = append(s.Objects, left)
		if o, ok := e.cluster.objects[key]; ok && d.State.HoldPrune && inv.keptAt[key] != d.State.Version {
			inv.keptAt[key] = d.State.Version
			e.notify(EventKept, d, o)
		}
	}
}

// refusal returns reason a target may not apply an object, or "".
func (e *fakeEngine) refusal(d engine.Desired, key objectKey) string {
	o, ok := e.cluster.objects[key]
	deployment := d.Tenant + "/" + d.Deployment
	switch {
	case !ok || o.Target == d.Target:
		return ""
	case o.Target != "":
		holder, known := e.desired[o.Target]
		if known && !desires(holder, key) {
			return "" // the other target no longer desires it
		}
		if !known && o.Deployment == deployment && e.cluster.inventories[o.Target] != nil {
			return "" // left by a target of this deployment that the engine has not received
		}
		return fmt.Sprintf("belongs to another deployment (%s, target %s)", o.Deployment, o.Target)
	case o.Deployment == deployment || d.State.Policy.Adopt:
		return ""
	}
	return "exists and is not managed by this deployment; set adopt: true to take it over"
}

// desiredByOther reports whether a target other than id desires an object.
func (e *fakeEngine) desiredByOther(key objectKey, id fleet.TargetID) bool {
	for other, d := range e.desired {
		if other != id && desires(d, key) {
			return true
		}
	}
	return false
}

func desires(d engine.Desired, key objectKey) bool {
	return d.Objects != nil && slices.ContainsFunc(d.Objects.Objects(), func(m manifest.Object) bool {
		return keyOf(manifest.Placed(m.Ref, d.State.Namespace)) == key
	})
}

func (e *fakeEngine) notify(kind EventKind, d engine.Desired, o Object) {
	e.cluster.observe(Event{
		Kind: kind, Replica: e.replica, Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment,
		State: d.State, Desired: d.Objects, Object: o,
	})
}

// isHandedOver reports whether an object that has left a target waits for another deployment.
func isHandedOver(d engine.Desired, ref fleet.ObjectRef) bool {
	name := ref.String()
	return !slices.Contains(d.State.Confirmed, name) && slices.ContainsFunc(d.State.HandOvers, func(h fleet.HandOver) bool { return h.Names(name) })
}
