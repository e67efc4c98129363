package builtin

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// overdue adds to the status of an object that it takes longer than the deployment allows. It has no other effect: an
// object that gets ready later is ready. The reason of the pods of a workload stays, since it tells why.
func (t *target) overdue(o *object, status fleet.ObjectStatus) fleet.ObjectStatus {
	at := t.deadline(o)
	switch {
	case at.IsZero() || t.now.Before(at):
	case o.phase == phaseTerminating:
		status.Sync, status.Reason = fleet.SyncFailed, fleet.ReasonPruneTimeout
		status.Message = fmt.Sprintf("its deletion takes longer than %v: %s", t.work.desired.State.Policy.PruneTimeout, o.health.cause.Message)
	default:
		status.Health, status.Reason = fleet.HealthFailed, cmp.Or(o.podsReason(), fleet.ReasonReadyTimeout)
		status.Message = joinNonEmpty(": ", fmt.Sprintf("is not ready after %v", t.work.desired.State.Policy.ReadyTimeout), o.explanation().Message)
	}
	return status
}

// deadline returns when an object is overdue; zero when it never is.
func (t *target) deadline(o *object) time.Time {
	policy := t.work.desired.State.Policy
	switch {
	case policy.PruneTimeout > 0 && o.phase == phaseTerminating:
		return o.leaving.since.Add(policy.PruneTimeout)
	case policy.ReadyTimeout > 0 && o.leaving == nil && o.phase == phaseInPlace && !o.health.unreadySince.IsZero():
		return o.health.unreadySince.Add(policy.ReadyTimeout)
	}
	return time.Time{}
}

// lateObject names an object that takes longer to be ready than the deployment allows, or returns "".
func (t *target) lateObject() string {
	for _, o := range t.order {
		if at := t.deadline(o); o.leaving == nil && !at.IsZero() && !t.now.Before(at) {
			return o.ref.String() + " " + t.overdue(o, fleet.ObjectStatus{}).Message
		}
	}
	return ""
}
