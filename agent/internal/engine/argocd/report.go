package argocd

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// report reports the status of a pass if it has changed. While Argo CD has not compared a new revision, the objects of the
// last comparison stay listed.
func (t *target) report(app *application, out outcome) {
	status := out.status
	status.Target, status.Observed.Version = t.id, t.work.State.Version
	if status.Objects == nil && !out.ended && app != nil {
		for _, r := range app.objects() {
			health, message := objectHealth(app, r)
			status.Objects = append(status.Objects, fleet.ObjectStatus{ObjectRef: r.ref(), Sync: fleet.SyncSyncing, Health: health, Reason: fleet.ReasonArgoCDNotReconciled, Message: message})
		}
	}
	slices.SortFunc(status.Objects, func(a, b fleet.ObjectStatus) int {
		return inventory.KeyOf(a.ObjectRef).Compare(inventory.KeyOf(b.ObjectRef))
	})
	if o := status.Observed; o.Sync == fleet.SyncSynced || o.Sync == fleet.SyncOutOfSync {
		status.Observed.Digest = t.work.State.Digest
	}
	last := t.last
	last.Observed.AsOf = time.Time{}
	if t.reported && reflect.DeepEqual(last, status) {
		return
	}
	status.Observed.AsOf = time.Now()
	t.last, t.reported = status, true
	t.engine.reporter.Status(status)
	t.stateEvents()
}

// stateEvents reports once for each version that it is Synced, or that deletions are held.
func (t *target) stateEvents() {
	o := t.last.Observed
	switch {
	case o.Sync == fleet.SyncSynced && t.synced != o.Version:
		t.synced = o.Version
		t.event(fleet.EventNormal, fleet.ReasonSynced, fmt.Sprintf("%d objects are as desired", len(t.last.Objects)))
	case o.Reason == fleet.ReasonPruneHeld && t.heldFor != o.Version:
		t.heldFor = o.Version
		t.event(fleet.EventWarning, fleet.ReasonPruneHeld, o.Message)
	}
}
