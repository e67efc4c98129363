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
			Version: other.State.Version, Digest: e.cluster.inventoryLocked(id).digest, Sync: fleet.SyncRewound, Health: fleet.HealthUnknown, Reason: fleet.ReasonRewound,
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
		e.removeAll(d, &s, fleet.SyncDeleted, fleet.ReasonDeleted, e.deleteObject)
	case d.State.Detached:
		e.removeAll(d, &s, fleet.SyncDetached, fleet.ReasonDetached, e.detachObject)
	default:
		e.apply(d, &s)
	}
	return s
}

// removeAll removes or detaches all objects of a target, and then its inventory. done and reason are the state of a target
// without objects.
func (e *fakeEngine) removeAll(d engine.Desired, s *engine.Status, done fleet.SyncState, reason fleet.Reason, removeOne func(engine.Desired, objectKey) bool) {
	s.Observed.Sync, s.Observed.Reason = done, reason
	inv := e.cluster.inventories[d.Target]
	if inv == nil {
		if d.State.Tombstone {
			s.Observed.Reason = fleet.ReasonNoInventory
		}
		s.Observed.Message = "the target has no inventory: nothing was done"
		return
	}
	inv.version, inv.digest = d.State.Version, ""
	for _, key := range sortedKeys(inv.entries) {
		if removeOne(d, key) {
			delete(inv.entries, key)
		}
	}
	if len(inv.entries) > 0 {
		s.Observed.Sync, s.Observed.Reason, s.Observed.Message = fleet.SyncSyncing, fleet.ReasonWaitingForDeployments, "other targets of this agent are pending"
		return
	}
	delete(e.cluster.inventories, d.Target)
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
	wanted, failed := map[objectKey]bool{}, false
	s.Observed.Sync, s.Observed.Reason = fleet.SyncSynced, fleet.ReasonSynced
	for _, m := range d.Objects.Objects() {
		ref := manifest.Placed(m.Ref, d.State.Namespace)
		key := keyOf(ref)
		wanted[key] = true
		status := fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Reason: fleet.ReasonSynced}
		if why := e.refusal(d, key); !why.IsZero() {
			status.Sync, status.Health, status.Reason, status.Message = fleet.SyncFailed, fleet.HealthUnknown, why.Reason, why.Message
			failed = true
			s.Observed.Sync, s.Observed.Health, s.Observed.Reason = fleet.SyncFailed, fleet.HealthUnknown, fleet.ReasonObjectsFailed
			s.Observed.Message = ref.String() + ": " + why.Message
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
	if !failed {
		inv.digest = d.State.Digest
	}
	s.Observed.Digest = inv.digest
	e.prune(d, inv, wanted, failed, s)
	slices.SortFunc(s.Objects, func(a, b fleet.ObjectStatus) int { return compareKeys(keyOf(a.ObjectRef), keyOf(b.ObjectRef)) })
}

// prune deletes the objects that have left the bundle, or reports why they stay.
func (e *fakeEngine) prune(d engine.Desired, inv *inventory, wanted map[objectKey]bool, failed bool, s *engine.Status) {
	why := pruneGuard(d.State.Policy, len(wanted), failed)
	exceedsLimit := inv.exceedsLimit(d.State, wanted)
	for _, key := range sortedKeys(inv.entries) {
		if wanted[key] {
			continue
		}
		if d.State.HoldPrune {
			inv.unconfirmed[key] = true // also for later versions
		}
		needsConfirmation := why.IsZero() && !e.pending && (d.State.HoldPrune || inv.needsConfirmation(d.State, key, exceedsLimit))
		if why.IsZero() && !needsConfirmation && e.deleteObject(d, key) {
			inv.forget(key)
			continue
		}
		left := fleet.ObjectStatus{ObjectRef: inv.entries[key], Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		switch {
		case needsConfirmation:
			left.Sync, left.Reason, left.Message = fleet.SyncHeld, fleet.ReasonPruneHeld, "is no longer in the bundle; kept until its deletion is confirmed"
			if s.Observed.Sync == fleet.SyncSynced {
				s.Observed.Sync, s.Observed.Reason = fleet.SyncOutOfSync, fleet.ReasonPruneHeld
			}
		case why.IsZero():
			left.Sync, left.Reason, left.Message = fleet.SyncSyncing, e.waitReason(), "is no longer in the bundle; kept for now"
			if s.Observed.Sync == fleet.SyncSynced || s.Observed.Sync == fleet.SyncOutOfSync {
				s.Observed.Sync, s.Observed.Reason = fleet.SyncSyncing, left.Reason
			}
		default:
			left.Reason, left.Message = why.Reason, "is no longer in the bundle; kept: "+why.Message
		}
		s.Objects = append(s.Objects, left)
		if o, ok := e.cluster.objects[key]; ok && d.State.HoldPrune && inv.keptAt[key] != d.State.Version {
			inv.keptAt[key] = d.State.Version
			e.notify(EventKept, d, o)
		}
	}
}

// pruneGuard returns why nothing may be pruned; zero when objects may be pruned.
func pruneGuard(policy fleet.Policy, desired int, failed bool) fleet.Cause {
	switch {
	case desired == 0 && !policy.AllowEmpty:
		return fleet.Cause{Reason: fleet.ReasonBundleEmpty, Message: "the bundle is empty and allowEmpty is not set"}
	case failed:
		return fleet.Cause{Reason: fleet.ReasonPruneBlocked, Message: "nothing is pruned while objects fail to apply"}
	case !policy.Prune:
		return fleet.Cause{Reason: fleet.ReasonPruneDisabled, Message: "pruning is disabled for this deployment"}
	}
	return fleet.Cause{}
}

// waitReason returns why an object that may be deleted is kept for now.
func (e *fakeEngine) waitReason() fleet.Reason {
	if e.pending {
		return fleet.ReasonWaitingForDeployments
	}
	return fleet.ReasonHandOverPending
}

// refusal returns why a target may not apply an object; zero when it may.
func (e *fakeEngine) refusal(d engine.Desired, key objectKey) fleet.Cause {
	o, ok := e.cluster.objects[key]
	deployment := d.Tenant + "/" + d.Deployment
	switch {
	case !ok || o.Target == d.Target:
		return fleet.Cause{}
	case o.Target != "":
		holder, known := e.desired[o.Target]
		if known && !desires(holder, key) {
			return fleet.Cause{} // the other target no longer desires it
		}
		if !known && o.Deployment == deployment && e.cluster.inventories[o.Target] != nil {
			return fleet.Cause{} // left by a target of this deployment that the engine has not received
		}
		return fleet.Cause{Reason: fleet.ReasonOwnedByOther, Message: fmt.Sprintf("belongs to another deployment (%s, target %s)", o.Deployment, o.Target)}
	case o.Deployment == deployment || d.State.Policy.Adopt:
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: fleet.ReasonNotAdopted, Message: "exists and is not managed by this deployment; set adopt: true to take it over"}
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
