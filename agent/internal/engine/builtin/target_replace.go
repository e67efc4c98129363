package builtin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// awaitGone notes that an object was deleted to be created anew, and that this takes its time. Its
// watch says when it is gone; without one it is looked at from time to time. A kill in between is
// mended as any deletion is: it is desired, and not there.
func (t *target) awaitGone(o *object, why *notGone) {
	o.phase, o.attempted, o.failure, o.known = phaseReplacing, true, "", false
	o.replaced, o.health, o.note = why.field, fleet.HealthTerminating, why.Error()
	o.due = time.Time{}
	if o.blind {
		o.due = time.Now().Add(o.backoff.next(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
	}
}

// replaceHold makes what says why an object must not be deleted to be created anew: what keeps it from
// being deleted keeps it from that as well.
func (t *target) replaceHold(ref fleet.ObjectRef) func() string {
	return func() string { return cmp.Or(t.refusal(ref), t.beyond(ref)) }
}

// createAnew has an object created that was deleted for that.
func (t *target) createAnew(o *object) {
	o.phase, o.known, o.backoff, o.due = phaseApply, false, backoff{}, time.Time{}
}

// tellTaken says what was taken over from others.
func (t *target) tellTaken(o *object, out result) {
	switch from := out.from; {
	case from.target != "":
		t.engine.tookOver(from.target, o.key())
		t.event(fleet.EventNormal, "TakenOver", o, fmt.Sprintf("was taken over from target %s, which this deployment was here before", from.target))
	case from.agent != "":
		t.event(fleet.EventNormal, "TakenOver", o, fmt.Sprintf("was taken over from agent %s, which has no inventory here", from.agent))
	}
	t.tellAdopted(o, out.adopted)
	if len(out.taken) == 0 {
		return
	}
	const limit = 5
	var parts []string
	for _, c := range out.taken[:min(limit, len(out.taken))] {
		parts = append(parts, fmt.Sprintf("%s from %q", c.Field, c.Manager))
	}
	if more := len(out.taken) - limit; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	t.event(fleet.EventNormal, "Forced", o, "took over "+strings.Join(parts, ", "))
}
