package builtin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// awaitGone waits until an object is gone that was deleted to be recreated. Its watch reports that; without a watch it
// is tried again from time to time. A restart in between is harmless: the object is desired and does not exist.
func (t *target) awaitGone(o *object, why *kube.NotGoneError) {
	t.transition(o, phaseReplacing)
	o.retry.attempted, o.retry.failure, o.live.known = true, fleet.Cause{}, false
	o.replaced, o.health.status = why.Field, fleet.HealthTerminating
	o.health.cause = fleet.Cause{Reason: fleet.ReasonTerminating, Message: why.Error()}
	o.retry.due = time.Time{}
	if o.watch.Failed() {
		o.retry.due = time.Now().Add(o.retry.backoff.NextJittered(t.engine.timing.retryFirst, t.engine.timing.forbiddenMax))
	}
}

// replaceHold returns a function that returns why an object must not be deleted and recreated; zero when it may. The causes
// are those for a deletion.
func (t *target) replaceHold(ref fleet.ObjectRef) func() fleet.Cause {
	return func() fleet.Cause { return cmp.Or(t.refusal(ref), t.beyond(ref)) }
}

// recreate creates an object that was deleted to be recreated.
func (t *target) recreate(o *object) {
	t.transition(o, phaseApply)
	o.live.known, o.retry.backoff, o.retry.due = false, wait.Backoff{}, time.Time{}
}

// reportTakeover emits events for what an apply took over from others.
func (t *target) reportTakeover(o *object, out kube.ApplyResult) {
	switch from := out.Previous; {
	case from.Target != "":
		t.engine.tookOver(from.Target, o.key())
		t.event(fleet.EventNormal, fleet.ReasonTakenOver, o, fmt.Sprintf("was taken over from target %s, which this deployment was here before", from.Target))
	case from.Agent != "":
		t.event(fleet.EventNormal, fleet.ReasonTakenOver, o, fmt.Sprintf("was taken over from agent %s, which has no inventory here", from.Agent))
	}
	t.reportAdoption(o, out.Adopted)
	if len(out.Forced) == 0 {
		return
	}
	const limit = 5
	var parts []string
	for _, c := range out.Forced[:min(limit, len(out.Forced))] {
		parts = append(parts, fmt.Sprintf("%s from %q", c.Field, c.Manager))
	}
	if more := len(out.Forced) - limit; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	t.event(fleet.EventNormal, fleet.ReasonForced, o, "took over "+strings.Join(parts, ", "))
}

// reportAdoption emits an event that names the former managers of an adopted object.
func (t *target) reportAdoption(o *object, a *kube.Adoption) {
	switch {
	case a == nil:
	case len(a.Tools) > 0:
		t.event(fleet.EventWarning, fleet.ReasonAdopted, o, fmt.Sprintf("was taken over although it belongs to %s: remove it there, or both will change it", strings.Join(a.Tools, " and ")))
	case len(a.Managers) > 0:
		t.event(fleet.EventNormal, fleet.ReasonAdopted, o, fmt.Sprintf("was taken over as it was found; fields of it were set by %q", a.Managers))
	default:
		t.event(fleet.EventNormal, fleet.ReasonAdopted, o, "was taken over as it was found")
	}
}
