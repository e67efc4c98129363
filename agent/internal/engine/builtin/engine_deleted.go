package builtin

import (
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// deletedTarget is what is remembered about a target that was deleted or detached.
type deletedTarget struct {
	version fleet.Version
	sync    fleet.SyncState // SyncDeleted or SyncDetached
}

// maxDeleted bounds how many deleted targets are remembered. If the last state of a forgotten one arrives again, it is
// carried out again, which costs nothing.
const maxDeleted = 4096

// isDeleted reports whether d is an old state of a target that was deleted or detached. Such a state, unless it is the
// one that ended the target, comes from a server that was restored from an old backup. It is not carried out, since that
// server has not evaluated its source since. The server is told the version of this agent instead, and continues from
// there.
func (e *Engine) isDeleted(d engine.Desired) bool {
	e.mu.Lock()
	g, ok := e.past.deleted[d.Target]
	e.mu.Unlock()
	if !ok || d.State.Compare(g.version) > 0 {
		return false
	}
	if !g.endedBy(d.State) {
		e.reporter.Status(g.status(d.Target))
	}
	return true
}

// endedBy reports whether d is the state that ended the target.
func (g deletedTarget) endedBy(d fleet.Desired) bool {
	return d.Version == g.version && (g.sync == fleet.SyncDeleted && d.Tombstone || g.sync == fleet.SyncDetached && d.Detached)
}

func (g deletedTarget) status(target fleet.TargetID) engine.Status {
	what, reason := "deleted", fleet.ReasonDeleted
	if g.sync == fleet.SyncDetached {
		what, reason = "detached", fleet.ReasonDetached
	}
	return engine.Status{Target: target, Observed: fleet.Observed{
		Version: g.version, Sync: g.sync, Health: fleet.HealthUnknown, Reason: reason, AsOf: time.Now(),
		Message: fmt.Sprintf("everything was %s here at generation %d already", what, g.version.Generation),
	}}
}

// retire forgets a target that has ended and reported it. It returns false when something newer has arrived: then the
// target continues.
func (e *Engine) retire(t *target, g deletedTarget) bool {
	e.setting.Lock() // no Set finds the target meanwhile
	defer e.setting.Unlock()
	if t.hasNext() {
		return false
	}
	e.claims.drop(t.id)
	e.watchers.definitions.Want(t, false)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.targets, t.id)
	for id := range e.past.deleted {
		if len(e.past.deleted) < maxDeleted {
			break
		}
		delete(e.past.deleted, id)
	}
	e.past.deleted[t.id] = g
	return true
}

// superseded implements claimListener: it ends the work on a target that another one of its deployment replaces.
func (e *Engine) superseded(old, by fleet.TargetID) {
	e.mu.Lock()
	t := e.targets[old]
	e.mu.Unlock()
	if t != nil {
		t.supersede(by)
	}
}

// takeInventory returns the inventory of a target for its goroutine; a new one when none was recovered. An inventory
// that this agent wrote before it was enrolled again is continued: the server says that the target is ours.
func (e *Engine) takeInventory(id fleet.TargetID) *inventory.Inventory {
	e.mu.Lock()
	defer e.mu.Unlock()
	inv := e.past.inventories[id]
	delete(e.past.inventories, id)
	if inv == nil {
		return e.store.New(e.settings.agent, id)
	}
	inv.SetAgent(e.settings.agent)
	return inv
}

// takeover is an object that was taken over from a target.
type takeover struct {
	from fleet.TargetID
	key  inventory.Key
}

// outlived reports whether holder is an earlier target of a deployment that has only an inventory left: the server sent
// another target of that deployment. An object that goes back to a holder from which it was taken over is not taken over
// twice: something else works on it.
func (e *Engine) outlived(holder fleet.TargetID, key inventory.Key, deployment string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	inv := e.past.inventories[holder]
	return inv != nil && inv.Deployment() == deployment && !e.past.takenOver[takeover{holder, key}]
}

// tookOver records that an object was taken over from a target that was outlived.
func (e *Engine) tookOver(from fleet.TargetID, key inventory.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.past.takenOver[takeover{from, key}] = true
}
