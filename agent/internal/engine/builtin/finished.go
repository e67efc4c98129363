package builtin

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// A Job or a Pod that has finished has done its work. When it is deleted afterwards, by its ttlSecondsAfterFinished, by a
// garbage collector or by a person, that is no drift: creating it again would run it again. It counts as done until its
// manifest changes. The inventory remembers that for a restart.

// finishOf returns how a live Job or Pod has finished; "" when it has not, or is of another kind. A failed Pod is
// created again: an evicted Pod has failed too.
func finishOf(live *unstructured.Unstructured) inventory.Finish {
	switch kind := live.GroupVersionKind().GroupKind().String(); kind {
	case "Job.batch":
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			switch {
			case condition["status"] != "True":
			case condition["type"] == "Complete":
				return inventory.FinishedComplete
			case condition["type"] == "Failed":
				return inventory.FinishedFailed
			}
		}
	case "Pod":
		if phase, _, _ := unstructured.NestedString(live.Object, "status", "phase"); phase == "Succeeded" {
			return inventory.FinishedComplete
		}
	}
	return ""
}

// noteFinish marks the inventory for a write when an object has finished, before it may be gone.
func (t *target) noteFinish(o *object) {
	t.publishFinish(o)
	if o.record.applied == o.spec.hash && t.inv.inventory.Entry(o.key()).Finished != o.record.finished {
		t.inv.dirty = true
	}
}

// evaluateDeleted handles the last state of an object that a watch does not report any more. A finished object is read
// once more: it may only have lost its label.
func (t *target) evaluateDeleted(o *object, last *unstructured.Unstructured) {
	if string(last.GetUID()) == o.record.uid {
		o.record.finished = finishOf(last)
	}
	if t.hasFinished(o) && (o.phase == phaseInPlace || o.phase == phaseVerify) {
		t.transition(o, phaseVerify)
		o.mustRead = true
		return
	}
	t.evaluateGone(o)
}

// hasFinished reports whether an object has finished as it is desired now.
func (t *target) hasFinished(o *object) bool {
	return o.leaving == nil && o.record.applied != "" && o.record.applied == o.spec.hash && o.record.finished != ""
}

// restsFinished makes an object done, in the given phase, if it has finished and does not exist any more. A Job that is
// deleted when it has finished, and that was deleted while nobody watched, counts as finished.
func (t *target) restsFinished(o *object, as phase) bool {
	if o.record.finished == "" && o.record.uid != "" && o.leaving == nil && o.expires() {
		o.record.finished = inventory.FinishedUnseen
	}
	if !t.hasFinished(o) {
		return false
	}
	t.transition(o, as)
	o.retry.attempted, o.retry.failure, o.retry.backoff = true, fleet.Cause{}, wait.Backoff{}
	o.live.known, o.drift.renewed, o.drift.deviates, o.drift.reported, o.drift.healing = false, false, false, fleet.Cause{}, false
	o.health.status, o.health.cause = finishedHealth(o.record.finished)
	t.noteFinish(o)
	return true
}

// finishedHealth returns the health of an object that has finished and does not exist any more.
func finishedHealth(how inventory.Finish) (fleet.Health, fleet.Cause) {
	switch how {
	case inventory.FinishedFailed:
		return fleet.HealthFailed, fleet.Cause{Reason: fleet.ReasonHealthCheckFailed, Message: "failed and was deleted since; it runs again when its manifest changes"}
	case inventory.FinishedUnseen:
		return fleet.HealthCurrent, fleet.Cause{Reason: fleet.ReasonFinished,
			Message: "was deleted while the agent did not watch; its ttlSecondsAfterFinished deletes it when it has finished, so it counts as finished until its manifest changes"}
	}
	return fleet.HealthCurrent, fleet.Cause{Reason: fleet.ReasonFinished, Message: "completed and was deleted since; it runs again when its manifest changes"}
}

// expires reports whether an object is a Job that is deleted when it has finished.
func (o *object) expires() bool {
	if o.ref.Group != "batch" || o.ref.Kind != "Job" {
		return false
	}
	_, found, _ := unstructured.NestedFieldNoCopy(o.spec.manifest.Object().Content, "spec", "ttlSecondsAfterFinished")
	return found
}
