package builtin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// see takes in what a watch has seen of an object.
func (t *target) see(o *object, seen observation) {
	o.denied = seen.denied
	if o.blind = seen.blind; !o.blind {
		o.dark, o.unread, o.reviews, o.review = "", "", backoff{}, time.Time{}
	}
	switch {
	case seen.sighted:
	case seen.blind:
		o.mustRead = true
		o.dark = cmp.Or(o.dark, seen.dark)
		t.expectReview(o)
	case o.busy():
		// The request that is under way may be what caused it: judged when its result is in.
		o.later = &seen
	case seen.live != nil:
		t.seeLive(o, seen.live)
	case seen.deleted != nil:
		if !o.outdated(seen.deleted.GetResourceVersion()) {
			t.seeGone(o)
		}
	case !o.outdated(seen.missing):
		t.seeMissing(o)
	}
}

// expectReview has an object that is not watched read from time to time.
func (t *target) expectReview(o *object) {
	if o.blind && o.review.IsZero() {
		o.review = t.now.Add(o.reviews.next(t.engine.timing.review, 2*t.engine.timing.review))
	}
}

// seeLive judges a live object.
func (t *target) seeLive(o *object, live *unstructured.Unstructured) {
	if o.outdated(live.GetResourceVersion()) {
		return
	}
	if o.manifest == nil {
		t.seeLeaving(o, live)
		return
	}
	o.look(live)
	switch {
	case o.phase != phaseInPlace && o.phase != phaseVerify:
		// It is going to be applied, or tried again, in any case.
	case live.GetDeletionTimestamp() != nil:
		// It is created again as soon as it is gone.
		o.phase, o.attempted = phaseInPlace, true
	case foreignHolder(live, t.id) != "":
		_, err := t.owner.claim(live, o.uid, func(fleet.TargetID) bool { return false })
		t.failed(o, err)
	case o.uid == string(live.GetUID()) && o.live == ourFields(live).projection(live.Object) && o.applied == o.hash:
		t.confirm(o, live)
	default:
		t.drift(o, live)
	}
}

func foreignHolder(live *unstructured.Unstructured, me fleet.TargetID) string {
	if holder := live.GetLabels()[LabelTarget]; holder != string(me) {
		return holder
	}
	return ""
}

// confirm notes that an object is as it was applied.
func (t *target) confirm(o *object, live *unstructured.Unstructured) {
	o.phase, o.attempted, o.failure = phaseInPlace, true, ""
	o.known = live.GetLabels()[LabelTarget] == string(t.id)
	if o.fields == nil {
		o.fields = rawOurFields(live)
	}
}

// drift has an object applied again that is not as it was applied last.
func (t *target) drift(o *object, live *unstructured.Unstructured) {
	o.known = o.uid == string(live.GetUID()) && live.GetLabels()[LabelTarget] == string(t.id)
	o.force = o.applied == o.hash
	o.drifted = live
	t.heal(o)
}

// heal has an object applied again, at once unless that happens all the time.
func (t *target) heal(o *object) {
	now := t.now
	delay := o.heals.next(now, t.engine.timing)
	o.phase, o.healing, o.delayed, o.due = phaseApply, o.applied == o.hash, delay > 0, now.Add(delay)
}

// seeGone takes in that an object was deleted, or has lost our label: the watch cannot tell which,
// so that nothing is done before it was looked at.
func (t *target) seeGone(o *object) {
	switch {
	case o.manifest == nil:
		t.lookAgain(o)
	case o.phase == phaseInPlace || o.phase == phaseVerify:
		o.known, o.drifted, o.force = false, nil, o.applied == o.hash
		o.health, o.note = fleet.HealthNotFound, "was deleted"
		t.heal(o)
	default:
		o.known = false
	}
}

// seeMissing takes in that a list did not have an object which was there before. It is read: the
// list may have been made before it was, and versions cannot always be compared.
func (t *target) seeMissing(o *object) {
	switch {
	case o.manifest == nil:
		t.lookAgain(o)
	case o.phase == phaseInPlace || o.phase == phaseVerify:
		o.phase, o.mustRead = phaseVerify, true
	}
}

// wasRead takes in the answer to a read of our own.
func (t *target) wasRead(o *object, live *unstructured.Unstructured, err error) {
	review := o.reviewing
	o.phase, o.mustRead = phaseVerify, false
	if t.ctx.Err() == nil && !apierrors.IsNotFound(err) {
		o.reviewed(t.now, t.engine.timing.review, err)
	}
	o.reviewing = false
	switch {
	case t.ctx.Err() != nil:
		o.mustRead = true
	case err != nil && review && !apierrors.IsNotFound(err):
		o.phase = phaseInPlace // nothing is known to be wrong with it
	case apierrors.IsNotFound(err):
		t.seeGone(o)
	case err != nil:
		t.failed(o, err)
	default:
		t.seeLive(o, live)
	}
	t.seeLater(o)
}

// applied takes in the result of an apply.
func (t *target) applied(o *object, live *unstructured.Unstructured, err error) {
	switch {
	case err == nil:
		t.succeeded(o, live)
	case t.ctx.Err() != nil:
		// Replaced by something newer, and perhaps carried out: not known until looked at.
		o.phase, o.known = phaseApply, false
	default:
		if apierrors.IsNotFound(err) {
			// Perhaps the kind is not served any more.
			t.engine.cluster.mapper.forget(o.ref.Group)
			t.unplace(o)
		}
		t.failed(o, err)
	}
	t.seeLater(o)
}

func (t *target) succeeded(o *object, live *unstructured.Unstructured) {
	before, recreated := o.drifted, o.healing && o.drifted == nil && o.uid != "" && o.uid != string(live.GetUID())
	recovered := o.failure != ""
	o.applied, o.uid, o.fields = o.hash, string(live.GetUID()), rawOurFields(live)
	ours := ourFields(live)
	o.live = ours.projection(live.Object)
	o.phase, o.attempted, o.known = phaseInPlace, true, true
	o.failure, o.backoff, o.force, o.drifted, o.delayed = "", backoff{}, false, nil, false
	o.look(live)
	t.dirty = t.dirty || t.book.Entry(o.key) != o.entry()
	switch {
	case recreated:
		t.event(fleet.EventNormal, "DriftHealed", o, "was deleted and is created again")
	case o.healing && before != nil && before.GetResourceVersion() != live.GetResourceVersion():
		t.event(fleet.EventNormal, "DriftHealed", o, driftMessage(before, live, ours))
	}
	o.healing = false
	if recovered {
		t.retryAfter(o.step)
	}
}

// driftMessage says which of our fields were changed, and by whom.
func driftMessage(before, after *unstructured.Unstructured, ours fieldSet) string {
	paths := ours.differing(before.Object, after.Object, 5)
	if len(paths) == 0 {
		return "was changed and is restored"
	}
	message := strings.Join(paths, ", ") + " restored"
	if who := culprit(before, paths); who != "" {
		message += fmt.Sprintf("; changed by %q", who)
	}
	return message
}

// retryAfter makes due what failed in later steps: it may have waited for what now works.
func (t *target) retryAfter(step int) {
	for _, o := range t.order {
		if o.phase == phaseFailed && o.step > step {
			o.due = time.Time{}
		}
	}
}

// seeLater judges what was seen while a request was under way.
func (t *target) seeLater(o *object) {
	if later := o.later; later != nil && !o.busy() {
		o.later = nil
		t.see(o, *later)
	}
}
