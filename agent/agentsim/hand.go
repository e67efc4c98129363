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

// hand is the engine of one agent process on a Cluster. It keeps the contract of package engine as the
// builtin engine does, but at once and without ever failing to reach the cluster: what it has not been
// told since the process began it does not touch, what has left a bundle it prunes unless the policy,
// HoldPrune, the prune limit or a pending target says otherwise, and what moves between targets is handed
// over. Of a deployment it works on the target that came last. Dry runs, drift and timeouts are beyond it.
//
// Everything below is guarded by the cluster's lock.
type hand struct {
	cluster *Cluster
	replica string
	report  func(engine.Status)
	desired map[fleet.TargetID]engine.Desired
	said    map[fleet.TargetID]engine.Status
	// strayed holds the targets in whose place another one of their deployment has come, and how far
	// they are.
	strayed map[fleet.TargetID]fleet.Version
	pending bool
}

func newHand(c *Cluster, replica string, report func(engine.Status)) *hand {
	return &hand{
		cluster: c, replica: replica, report: report, desired: map[fleet.TargetID]engine.Desired{},
		said: map[fleet.TargetID]engine.Status{}, strayed: map[fleet.TargetID]fleet.Version{},
	}
}

// Set implements link.Engine.
func (h *hand) Set(d engine.Desired) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	held := h.desired[d.Target].State.Version
	if b := h.cluster.books[d.Target]; b != nil && b.version.Compare(held) > 0 {
		held = b.version
	}
	if d.State.Compare(held) < 0 {
		h.tell(EventIgnored, d, Object{})
		return
	}
	if was, ok := h.desired[d.Target]; ok && was.State.Version == d.State.Version && was.State.Digest == d.State.Digest {
		return
	}
	if last, strayed := h.strayed[d.Target]; strayed && d.State.Compare(last) <= 0 {
		return // it has been told that this is over
	}
	h.supersede(d)
	h.desired[d.Target] = d
	h.tell(EventTaken, d, Object{})
	h.work()
}

// supersede ends the work on another target of the same deployment: a server has one of it here, so that
// one is no more, unless something newer of it comes.
func (h *hand) supersede(d engine.Desired) {
	delete(h.strayed, d.Target)
	if d.Objects == nil {
		return
	}
	for id, other := range h.desired {
		if id == d.Target || other.Objects == nil || other.Tenant != d.Tenant || other.Deployment != d.Deployment {
			continue
		}
		h.strayed[id] = other.State.Version
		h.say(engine.Status{Target: id, Observed: fleet.Observed{
			Version: other.State.Version, Digest: h.cluster.bookLocked(id).digest, Sync: fleet.SyncRewound, Health: fleet.HealthUnknown,
			Message: fmt.Sprintf("target %s of the same deployment has come in its place", d.Target),
		}})
		delete(h.desired, id)
		delete(h.said, id)
	}
}

// Pending implements link.Engine.
func (h *hand) Pending(n int) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.pending = n > 0
	h.work()
}

// work makes everything true that can be. What one target gives up another may be waiting for, so it
// goes round until nothing changes.
func (h *hand) work() {
	for again := true; again; {
		again = false
		for _, id := range slices.Sorted(maps.Keys(h.desired)) {
			if h.say(h.make(h.desired[id])) {
				again = true
			}
		}
	}
}

// say reports a status that is new. It reports whether it was.
func (h *hand) say(s engine.Status) bool {
	if was, ok := h.said[s.Target]; ok && reflect.DeepEqual(was, s) {
		return false
	}
	h.said[s.Target] = s
	s.Observed.AsOf = time.Now()
	h.report(s)
	if s.Observed.Sync == fleet.SyncDeleted || s.Observed.Sync == fleet.SyncDetached {
		delete(h.desired, s.Target)
		delete(h.said, s.Target)
	}
	return true
}

// make takes one target as far as it comes.
func (h *hand) make(d engine.Desired) engine.Status {
	s := engine.Status{Target: d.Target, Observed: fleet.Observed{Version: d.State.Version, Health: fleet.HealthCurrent}}
	switch {
	case d.State.Tombstone:
		s.Observed.Sync, s.Observed.Message = h.leave(d, fleet.SyncDeleted, h.remove)
	case d.State.Detached:
		s.Observed.Sync, s.Observed.Message = h.leave(d, fleet.SyncDetached, h.letGo)
	default:
		h.apply(d, &s)
	}
	return s
}

// leave parts with everything that a target has in the cluster, and then with its inventory.
func (h *hand) leave(d engine.Desired, done fleet.SyncState, part func(engine.Desired, objectKey) bool) (fleet.SyncState, string) {
	b := h.cluster.books[d.Target]
	if b == nil {
		return done, "no inventory was found here: nothing was done"
	}
	b.version, b.digest = d.State.Version, ""
	for _, key := range sortedKeys(b.entries) {
		if part(d, key) {
			delete(b.entries, key)
		}
	}
	if len(b.entries) > 0 {
		return fleet.SyncSyncing, "other deployments of this agent have not arrived yet"
	}
	delete(h.cluster.books, d.Target)
	return done, ""
}

// remove deletes an object of a target unless it has to stay for now. It reports whether the target
// has nothing to do with it any more.
func (h *hand) remove(d engine.Desired, key objectKey) bool {
	o, ok := h.cluster.objects[key]
	if !ok || o.Target != d.Target {
		return true // gone, or handed over
	}
	if h.pending || h.wantedBesides(key, d.Target) || handsOver(d, o.ObjectRef) {
		return false
	}
	delete(h.cluster.objects, key)
	h.tell(EventDeleted, d, o)
	return true
}

// letGo gives up an object of a target; it stays.
func (h *hand) letGo(d engine.Desired, key objectKey) bool {
	o, ok := h.cluster.objects[key]
	if !ok || o.Target != d.Target {
		return true
	}
	if h.pending || h.wantedBesides(key, d.Target) || handsOver(d, o.ObjectRef) {
		return false
	}
	o.Target = ""
	h.cluster.objects[key] = o
	h.tell(EventLetGo, d, o)
	return true
}

// apply puts the objects of a target into the cluster and prunes what has left its bundle.
func (h *hand) apply(d engine.Desired, s *engine.Status) {
	b := h.cluster.bookLocked(d.Target)
	b.version = d.State.Version
	wanted, failure := map[objectKey]bool{}, ""
	for _, m := range d.Objects.Objects() {
		ref := manifest.Placed(m.Ref, d.State.Namespace)
		key := keyOf(ref)
		wanted[key] = true
		status := fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		if why := h.refusal(d, key); why != "" {
			status.Sync, status.Health, status.Message = fleet.SyncFailed, fleet.HealthUnknown, why
			failure = ref.String() + ": " + why
		} else {
			b.entries[key] = ref
			delete(b.kept, key)
			delete(b.waiting, key)
			h.cluster.objects[key] = Object{
				ObjectRef: ref, Target: d.Target, Deployment: d.Tenant + "/" + d.Deployment, Content: m.Content,
			}
		}
		s.Objects = append(s.Objects, status)
	}
	s.Observed.Sync, s.Observed.Message = fleet.SyncSynced, ""
	if failure == "" {
		b.digest = d.State.Digest
	} else {
		s.Observed.Sync, s.Observed.Health, s.Observed.Message = fleet.SyncFailed, fleet.HealthUnknown, failure
	}
	s.Observed.Digest = b.digest
	h.prune(d, b, wanted, failure != "", s)
	slices.SortFunc(s.Objects, func(a, b fleet.ObjectStatus) int { return compareKeys(keyOf(a.ObjectRef), keyOf(b.ObjectRef)) })
}

// prune deletes what has left the bundle, or says why it stays.
func (h *hand) prune(d engine.Desired, b *book, wanted map[objectKey]bool, failed bool, s *engine.Status) {
	why := ""
	switch {
	case len(wanted) == 0 && !d.State.Policy.AllowEmpty:
		why = "the bundle is empty and the deployment does not allow that"
	case failed:
		why = "nothing is pruned while objects could not be applied"
	case !d.State.Policy.Prune:
		why = "pruning is off for this deployment"
	}
	over := b.over(d.State, wanted)
	for _, key := range sortedKeys(b.entries) {
		if wanted[key] {
			continue
		}
		if d.State.HoldPrune {
			b.waiting[key] = true // by whatever version comes next, too
		}
		unconfirmed := why == "" && !h.pending && (d.State.HoldPrune || b.unconfirmed(d.State, key, over))
		if why == "" && !unconfirmed && h.remove(d, key) {
			b.forget(key)
			continue
		}
		left := fleet.ObjectStatus{ObjectRef: b.entries[key], Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		switch {
		case unconfirmed:
			left.Sync, left.Message = fleet.SyncHeld, "is not in the bundle any more; kept until its deletion is confirmed"
			if s.Observed.Sync == fleet.SyncSynced {
				s.Observed.Sync = fleet.SyncOutOfSync
			}
		case why == "":
			left.Sync, left.Message = fleet.SyncSyncing, "is not in the bundle any more; kept for now"
			if s.Observed.Sync == fleet.SyncSynced || s.Observed.Sync == fleet.SyncOutOfSync {
				s.Observed.Sync = fleet.SyncSyncing
			}
		default:
			left.Message = "is not in the bundle any more; kept: " + why
		}
		s.Objects = append(s.Objects, left)
		if o, ok := h.cluster.objects[key]; ok && d.State.HoldPrune && b.kept[key] != d.State.Version {
			b.kept[key] = d.State.Version
			h.tell(EventKept, d, o)
		}
	}
}

// refusal says why a target may not apply an object, or "".
func (h *hand) refusal(d engine.Desired, key objectKey) string {
	o, ok := h.cluster.objects[key]
	deployment := d.Tenant + "/" + d.Deployment
	switch {
	case !ok || o.Target == d.Target:
		return ""
	case o.Target != "":
		holder, told := h.desired[o.Target]
		if told && !wants(holder, key) {
			return "" // given up there
		}
		if !told && o.Deployment == deployment && h.cluster.books[o.Target] != nil {
			return "" // left by a target of this deployment that nobody speaks of
		}
		return fmt.Sprintf("belongs to another deployment (%s, target %s)", o.Deployment, o.Target)
	case o.Deployment == deployment || d.State.Policy.Adopt:
		return ""
	}
	return "exists and is not managed by this deployment; set adopt: true to take it over"
}

// wantedBesides reports whether a target other than id desires an object.
func (h *hand) wantedBesides(key objectKey, id fleet.TargetID) bool {
	for other, d := range h.desired {
		if other != id && wants(d, key) {
			return true
		}
	}
	return false
}

func wants(d engine.Desired, key objectKey) bool {
	return d.Objects != nil && slices.ContainsFunc(d.Objects.Objects(), func(m manifest.Object) bool {
		return keyOf(manifest.Placed(m.Ref, d.State.Namespace)) == key
	})
}

func (h *hand) tell(kind EventKind, d engine.Desired, o Object) {
	h.cluster.observe(Event{
		Kind: kind, Replica: h.replica, Target: d.Target, Tenant: d.Tenant, Deployment: d.Deployment,
		State: d.State, Desired: d.Objects, Object: o,
	})
}

// handsOver reports whether an object that has left a target waits for another deployment.
func handsOver(d engine.Desired, ref fleet.ObjectRef) bool {
	name := ref.String()
	return !slices.Contains(d.State.Confirmed, name) && slices.ContainsFunc(d.State.HandOvers, func(h fleet.HandOver) bool { return h.Names(name) })
}
