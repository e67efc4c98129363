package builtin

import (
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// handOverGrace is how long an object counts as being handed over to another deployment. After that it is reported as
// held, with the reason.
const handOverGrace = 2 * time.Second

// handOver returns why an object that has left this target waits for another deployment, as the server says; "" when it
// does not wait, or when a user has confirmed its deletion.
func (t *target) handOver(ref fleet.ObjectRef) string {
	state := &t.work.desired.State
	if len(state.HandOvers) == 0 {
		return ""
	}
	name := ref.String()
	if slices.Contains(state.Confirmed, name) {
		return ""
	}
	for _, h := range state.HandOvers {
		if h.Names(name) {
			return h.String()
		}
	}
	return ""
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
	if held && o.retry.failure == "" && o.leaving.contents == "" && o.leaving.unservedSince.IsZero() && o.leaving.emptyAt.IsZero() {
		o.retry.due = time.Time{}
	}
}
