// Package health computes the health of an object: current, in progress, failed or terminating, and the reason. Its words and
// rules are those of kstatus, as in other tools, with one exception: a Job is current when it is complete, not when it has
// started, since objects that depend on it wait for its work. An object of a custom kind may define its health by CEL
// expressions. The package reads one object, sends no request and keeps only a bounded number of compiled expressions. It is
// safe for concurrent use.
package health

import (
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Of returns the health of a live object and, unless it is current, the cause. An object that cannot be read is Unknown,
// never healthy.
func Of(obj *unstructured.Unstructured) (fleet.Health, fleet.Cause) {
	h, message := compute(obj)
	if h == fleet.HealthCurrent {
		return h, fleet.Cause{}
	}
	return h, fleet.Cause{Reason: reasons[h], Message: message}
}

// reasons has the reason of each health that is not current.
var reasons = map[fleet.Health]fleet.Reason{
	fleet.HealthInProgress: fleet.ReasonProgressing, fleet.HealthFailed: fleet.ReasonHealthCheckFailed, fleet.HealthTerminating: fleet.ReasonTerminating,
	fleet.HealthNotFound: fleet.ReasonNotFound, fleet.HealthUnknown: fleet.ReasonHealthUnknown,
}

func compute(obj *unstructured.Unstructured) (fleet.Health, string) {
	if obj.GetDeletionTimestamp() != nil {
		// kstatus checks generic conditions first. An object that is being deleted is Terminating regardless of them.
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

// Leaving describes what the deletion of an object waits for.
func Leaving(finalizers []string) string {
	if len(finalizers) == 0 {
		return "is being deleted"
	}
	return "is being deleted; waits for " + strings.Join(finalizers, ", ")
}
