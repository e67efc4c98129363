package builtin

import (
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// handOverGrace is how long an object counts as being handed over to another deployment. After that it is reported as
// held, with the reason.
const handOverGrace = 2 * time.Second

// handOver returns why an object that has left this target waits for another deployment, as the server says; zero when it
// does not wait, or when a user has confirmed its deletion.
func (t *target) handOver(ref fleet.ObjectRef) fleet.Cause {
	state := &t.work.desired.State
	if len(state.HandOvers) == 0 {
		return fleet.Cause{}
	}
	name := ref.String()
	if slices.Contains(state.Confirmed, name) {
		return fleet.Cause{}
	}
	for _, h := range state.HandOvers {
		if h.Names(name) {
			return handOverCause(h)
		}
	}
	return fleet.Cause{}
}

// handOverCause returns the reason that the server gives. A reason of a newer server, which this agent does not know,
// counts as a pending hand-over.
func handOverCause(h fleet.HandOver) fleet.Cause {
	reason := h.Reason
	if _, known := reason.Info(); !known {
		reason = fleet.ReasonHandOverPending
	}
	return fleet.Cause{Reason: reason, Message: h.String()}
}

// awaitHandOver keeps an object until another target has taken it over, which the watch reports, or until a newer state
// of this target says otherwise. A user may confirm its deletion instead.
func (t *target) awaitHandOver(o *object) {
	o.leaving.waits = t.now.Before(t.work.begun.Add(handOverGrace))
	o.leaving.confirmable = !o.leaving.waits
	t.keep(o, o.leaving.handOver, false)
}

// endWait ends the wait of an object for other targets: it may be deleted now. An object that failed, or that has to be
// checked a second time, stays due at its time.
func (o *object) endWait() {
	held := o.phase == phaseKept || o.phase == phaseLeaving
	if held && o.retry.failure.IsZero() && o.leaving.contents.IsZero() && o.leaving.unservedSince.IsZero() && o.leaving.emptyAt.IsZero() {
		o.retry.due = time.Time{}
	}
}
