// Package health says how an object is doing: current, in progress, failed, terminating, and why.
// The words and the rules are those of kstatus, so that what Kedge shows is what other tools of the
// field show, with one exception: a Job is current when it is complete, not when it has begun, since
// what depends on it waits for its work. An object of a custom kind may say in CEL how it is read. It
// looks at one object only, asks no cluster and keeps nothing but a bounded number of compiled
// expressions; it is safe for concurrent use.
package health

import (
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Of returns the health of a live object and, unless it is current, the reason. An object that
// cannot be read is Unknown: it is never taken for healthy.
func Of(obj *unstructured.Unstructured) (fleet.Health, string) {
	if obj.GetDeletionTimestamp() != nil {
		// kstatus looks at generic conditions first; an object on its way out is that above all.
		return fleet.HealthTerminating, Leaving(obj.GetFinalizers())
	}
	if h, message, ok := byExpression(obj); ok {
		return h, message
	}
	result, err := status.Compute(obj)
	if err != nil {
		return fleet.HealthUnknown, "its status cannot be read: " + err.Error()
	}
	switch result.Status {
	case status.CurrentStatus:
		if running(obj) {
			return fleet.HealthInProgress, result.Message
		}
		return fleet.HealthCurrent, ""
	case status.InProgressStatus:
		return fleet.HealthInProgress, result.Message
	case status.FailedStatus:
		return fleet.HealthFailed, result.Message
	case status.TerminatingStatus:
		return fleet.HealthTerminating, result.Message
	case status.NotFoundStatus:
		return fleet.HealthNotFound, result.Message
	default:
		return fleet.HealthUnknown, result.Message
	}
}

// running reports whether an object is a Job that has work left.
func running(obj *unstructured.Unstructured) bool {
	if obj.GetKind() != "Job" || obj.GroupVersionKind().Group != "batch" {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	return !slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Complete" && condition["status"] == "True"
	})
}

// Leaving says of an object that is being deleted what that waits for.
func Leaving(finalizers []string) string {
	if len(finalizers) == 0 {
		return "is being deleted"
	}
	return "is being deleted; waits for " + strings.Join(finalizers, ", ")
}
