package unready

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Kubernetes, its controllers and its container runtimes may use any word as a reason. The list of Kedge is fixed, so every
// word without a reason of its own becomes ReasonPodsNotReady. The message has the word itself.

// byStatus has the reasons of the statuses of pods and containers.
var byStatus = map[string]fleet.Reason{
	"ImagePullBackOff":           fleet.ReasonImagePullBackOff,
	"ErrImageNeverPull":          fleet.ReasonImagePullBackOff,
	"ImageInspectError":          fleet.ReasonImagePullBackOff,
	"InvalidImageName":           fleet.ReasonInvalidImageName,
	"CrashLoopBackOff":           fleet.ReasonCrashLoopBackOff,
	"CreateContainerConfigError": fleet.ReasonCreateContainerConfigError,
	"CreateContainerError":       fleet.ReasonCreateContainerError,
	"RunContainerError":          fleet.ReasonCreateContainerError,
	"Evicted":                    fleet.ReasonEvicted,
	"Failed":                     fleet.ReasonContainerFailed,
}

// byWarning has the reasons of warning events.
var byWarning = map[string]fleet.Reason{
	"FailedScheduling":   fleet.ReasonUnschedulable,
	"FailedMount":        fleet.ReasonFailedMount,
	"FailedAttachVolume": fleet.ReasonFailedMount,
	"Unhealthy":          fleet.ReasonProbeFailed,
	"FailedCreate":       fleet.ReasonFailedCreate,
}

func statusReason(status string) fleet.Reason {
	return cmp.Or(byStatus[status], fleet.ReasonPodsNotReady)
}

// warningReason returns the reason of the first warning that has one of its own.
func warningReason(warnings []Warning) fleet.Reason {
	for _, w := range warnings {
		if reason := byWarning[w.Reason]; reason != "" {
			return reason
		}
	}
	return fleet.ReasonPodsNotReady
}

// scheduleReason returns the reason of a pod without a node. A scheduling gate is not a matter of the nodes.
func scheduleReason(condition string) fleet.Reason {
	if condition == corev1.PodReasonSchedulingGated {
		return fleet.ReasonPodsNotReady
	}
	return fleet.ReasonUnschedulable
}

// exitReason returns the reason of a container that has ended; general unless the container was out of memory.
func exitReason(ended *corev1.ContainerStateTerminated, general fleet.Reason) fleet.Reason {
	if ended.Reason == "OOMKilled" {
		return fleet.ReasonOOMKilled
	}
	return general
}
