package builtin

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// The inventory is written beside the goroutine of the target, one write at a time, so that drift is healed meanwhile. What
// depends on a write waits for its result:
//
//   - Nothing is applied before the inventory that lists it is written (widenInventory).
//   - Nothing is deleted or released for a tombstone or a detachment before that is written (recordEnd).
//   - An entry is left out of a write only after its object is gone or released.
//   - No status is reported during a write, unless the write only records heals: Synced means that a restart finds all of it.

// inventoryState is the inventory of a target, and what is to be written to it.
type inventoryState struct {
	inventory *inventory.Inventory // nil before the first begin
	dirty     bool                 // it is to be written
	healed    bool                 // it lacks only what healing has changed: a restart would apply that once more
	healWrite time.Time            // when the last write started that only records heals
	digest    string               // of the bundle that was applied whole
	base      int                  // objects that were in place before the change that is not decided on yet

	running  bool        // a write is under way
	quiet    bool        // it only records heals
	widening bool        // it lists objects that are about to be applied
	failure  fleet.Cause // of the last write; zero when it did not fail
	backoff  wait.Backoff
	due      time.Time
}

// inventoryDue reports whether the inventory is to be written. Writes that only record heals are limited in their rate, so
// that many heals share one.
func (t *target) inventoryDue() bool {
	return t.inv.dirty || t.inv.healed && !t.now.Before(t.healWriteDue())
}

// healWriteDue returns the earliest time of the next write that only records heals.
func (t *target) healWriteDue() time.Time { return t.inv.healWrite.Add(t.engine.timing.healWrites) }

// widenInventory lists everything that is about to be applied in the inventory. It reports whether that is written, so that
// applying may go on.
func (t *target) widenInventory() bool {
	if t.inv.widening {
		return false
	}
	var missing []*object
	for _, o := range t.order {
		if o.leaving == nil && o.phase == phaseApply && o.kind.resolved && !o.record.listed {
			missing = append(missing, o)
		}
	}
	if len(missing) == 0 {
		return true
	}
	if t.inv.running {
		return false
	}
	for _, o := range missing {
		o.record.listed = true
	}
	t.inv.dirty = true
	if t.inv.widening = t.saveInventory(); !t.inv.widening {
		t.unlist() // they are listed again when the write can start
	}
	return false
}

// unlist takes back that objects are listed which the inventory does not have.
func (t *target) unlist() {
	for _, o := range t.order {
		if o.leaving == nil && t.inv.inventory.Entry(o.key()) == (inventory.Entry{}) {
			o.record.listed = false
		}
	}
}

// inventoryRecord is what the inventory shall hold.
func (t *target) inventoryRecord() inventory.Record {
	rec := inventory.Record{
		Target: t.id, Tenant: t.work.desired.Tenant, Deployment: t.work.desired.Deployment,
		Version: t.work.desired.State.Version, Digest: t.inv.digest, Base: t.nextBase(), Entries: map[inventory.Key]inventory.Entry{},
	}
	for _, o := range t.order {
		if o.record.listed {
			rec.Entries[o.key()] = o.entry()
		}
	}
	return rec
}

// saveInventory starts a write of the inventory, unless one is under way or the desired state is not kept yet. After a
// write without an answer it reads the inventory first; then the next pass writes it. It reports whether a write has started.
func (t *target) saveInventory() bool {
	switch {
	case t.inv.running || !t.offlineCopyDone():
		return false
	case t.inv.inventory.Stale():
		t.startReload()
		return false
	}
	t.startSave()
	return true
}

func (t *target) startSave() {
	inv, rec := t.inv.inventory, t.inventoryRecord()
	quiet := !t.inv.dirty
	t.inv.dirty, t.inv.healed = false, false
	if quiet {
		t.inv.healWrite = t.now
	}
	reloaded := false
	t.writeInventory(quiet, func(ctx context.Context) error {
		err := inv.Save(ctx, rec)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			// Somebody else has written it. Its content decides whether to go on.
			again := inv.Reload(ctx)
			if reloaded = again == nil; !reloaded {
				err = again
			}
		}
		return err
	}, func(err error) {
		if err == nil {
			t.inv.failure, t.inv.backoff, t.inv.due = fleet.Cause{}, wait.Backoff{}, time.Time{}
			return
		}
		t.inv.dirty = true
		if reloaded {
			t.addReloaded()
		}
		t.unlist()
		t.saveFailed(err)
	})
}

func (t *target) startReload() {
	t.writeInventory(false, t.inv.inventory.Reload, func(err error) {
		if err != nil {
			t.saveFailed(err)
			return
		}
		if !t.yieldsToReplica() {
			t.addReloaded()
		}
	})
}

// addReloaded adds the objects of the inventory that are not known here, after it was read again.
func (t *target) addReloaded() {
	t.addRecorded(t.inv.inventory.Record())
	t.sort()
	t.signal()
}

// writeInventory runs op beside the goroutine, and done with its result on the goroutine. quiet lets statuses be reported
// meanwhile.
func (t *target) writeInventory(quiet bool, op func(ctx context.Context) error, done func(err error)) {
	t.inv.running, t.inv.quiet = true, quiet
	version := t.work.ctx
	t.engine.work.Go(func() {
		ctx, cancel := context.WithTimeout(version, t.engine.timing.requests.Request)
		defer cancel()
		err := op(ctx)
		t.post(func(in *inbox) {
			in.results = append(in.results, func() {
				t.inv.running, t.inv.quiet, t.inv.widening = false, false, false
				done(err)
			})
		})
	})
}

// saveFailed schedules the next attempt after a write that failed.
func (t *target) saveFailed(err error) {
	if t.yieldsToReplica() || t.work.ctx.Err() != nil {
		return
	}
	t.log.Warn("the inventory could not be written", "error", err)
	t.inv.failure = fleet.Cause{Reason: fleet.ReasonInventoryNotWritten, Message: err.Error()}
	t.inv.due = time.Now().Add(t.inv.backoff.NextJittered(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
}

// yieldsToReplica ends the work on a target whose inventory another replica of this agent has written for a newer version,
// until something newer is desired here too. It reports whether that is so.
func (t *target) yieldsToReplica() bool {
	version := t.inv.inventory.Version()
	if version.Compare(t.work.desired.State.Version) <= 0 {
		return false
	}
	t.stopped.newerReplica = true
	t.log.Warn("another replica of this agent works on a newer version", "generation", version.Generation)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inbox.minVersion = version
	t.inbox.cancel()
	return true
}

// offlineCopyDone reports whether the inventory may name the version that is worked on: it is kept for when the server
// is away, or cannot be. Until then nothing is written down; the first call asks for it.
func (t *target) offlineCopyDone() bool {
	if t.work.desired.Keep == nil || t.inv.inventory.Version() == t.work.desired.State.Version {
		return true
	}
	if t.work.offlineCopy == nil {
		keeping, ctx := t.work.desired.Keep(), t.work.ctx
		t.work.offlineCopy = keeping
		t.engine.work.Go(func() {
			select {
			case <-keeping:
			case <-ctx.Done():
			}
			t.signal()
		})
	}
	select {
	case <-t.work.offlineCopy:
		return true
	default:
		return false
	}
}
