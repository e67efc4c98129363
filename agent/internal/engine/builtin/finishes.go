package builtin

import (
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// finishes knows the targets of Jobs and Pods that have finished, so that one that moves to another target does not run
// again. Safe for concurrent use.
type finishes struct {
	mu    sync.Mutex
	byKey map[inventory.Key]map[fleet.TargetID]finish
}

// finish is how an object has finished, as it was applied.
type finish struct {
	hash string // of the manifest
	how  inventory.Finish
}

func newFinishes() *finishes { return &finishes{byKey: map[inventory.Key]map[fleet.TargetID]finish{}} }

// set records how an object of a target has finished; a zero finish removes the record. It returns the other targets
// that have the object: one of them may wait for this.
func (f *finishes) set(key inventory.Key, target fleet.TargetID, is finish) (others []fleet.TargetID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.byKey[key]
	if is.how == "" {
		delete(all, target)
		if len(all) == 0 {
			delete(f.byKey, key)
		}
		return nil
	}
	if all[target] == is {
		return nil
	}
	if all == nil {
		all = map[fleet.TargetID]finish{}
		f.byKey[key] = all
	}
	all[target] = is
	for id := range all {
		if id != target {
			others = append(others, id)
		}
	}
	return others
}

// elsewhere returns how an object has finished in another target with the same manifest; "" when it has not.
func (f *finishes) elsewhere(key inventory.Key, me fleet.TargetID, hash string) inventory.Finish {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, is := range f.byKey[key] {
		if id != me && is.hash == hash {
			return is.how
		}
	}
	return ""
}

// publishFinish tells other targets how an object has finished.
func (t *target) publishFinish(o *object) {
	is := finish{o.record.applied, o.record.finished}
	if o.record.applied == "" {
		is = finish{}
	}
	for _, id := range t.engine.finishes.set(o.key(), t.id, is) {
		t.engine.retryTarget(id)
	}
}

// inheritFinish makes an object finished that is about to be created, if it has finished in the target from which it
// comes. It counts after a read shows that the object does not exist.
func (t *target) inheritFinish(o *object) bool {
	if o.record.uid != "" || o.record.finishFrom != finishOwn {
		return false
	}
	how := t.engine.finishes.elsewhere(o.key(), t.id, o.spec.hash)
	if how == "" {
		return false
	}
	o.record.applied, o.record.finished, o.record.finishFrom = o.spec.hash, how, finishInherited
	t.transition(o, phaseVerify)
	o.mustRead = true
	return true
}

// applyExisting applies an object as any other, because it exists.
func (t *target) applyExisting(o *object) {
	o.record.applied, o.record.finished, o.record.finishFrom = "", "", finishVoid
	t.transition(o, phaseApply)
	o.mustRead = false
	t.signal()
}

// finishSource tells whether the finish of an object comes from another target.
type finishSource int

const (
	finishOwn       finishSource = iota
	finishInherited              // and the object is to be read
	finishVoid                   // because the object exists
)

// awaitsTakeover reports whether another target still has to take over a finished object that does not exist any more.
// If it were forgotten here before, the other target would run it again.
func (t *target) awaitsTakeover(o *object) bool {
	if o.record.finished == "" {
		return false
	}
	wanted := t.engine.claims.other(o.key(), t.id) != "" || !t.handOver(o.ref).IsZero()
	return wanted && t.engine.finishes.elsewhere(o.key(), t.id, o.record.applied) == ""
}
