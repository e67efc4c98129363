package unready

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// steady maps reasons of containers that alternate while one problem lasts to the one that is reported.
var steady = map[string]string{
	"ErrImagePull":     "ImagePullBackOff",
	"ImagePullBackOff": "ImagePullBackOff",
	"CrashLoopBackOff": "CrashLoopBackOff",
}

// starting are reasons of containers that every pod goes through.
var starting = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// Pods returns the pods that are neither ready nor done nor being deleted: those with a status first, then the oldest.
func Pods(pods []corev1.Pod) []Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || isReady(&p)
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := make([]Pod, 0, len(pods))
	for i := range pods {
		found := problem(&pods[i])
		found.Name, found.UID = pods[i].Name, string(pods[i].UID)
		out = append(out, found)
	}
	slices.SortStableFunc(out, func(a, b Pod) int {
		if (a.Status == "") == (b.Status == "") {
			return 0
		}
		return cmp.Compare(b.Status, a.Status)
	})
	return out
}

func isReady(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// problem returns why a pod is not ready, without its name; an empty Status when the pod does not tell.
func problem(pod *corev1.Pod) Pod {
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return Pod{Status: "Pending", Reason: scheduleReason(c.Reason), Detail: cut(c.Message, maxWarning)}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if found := containerProblem(&statuses[i]); found.Status != "" {
				return found
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		status := cmp.Or(pod.Status.Reason, "Failed")
		return Pod{Status: status, Reason: statusReason(status), Detail: cut(pod.Status.Message, maxWarning)}
	}
	return Pod{}
}

// containerProblem returns why a container is not ready; an empty Status when it is, or is only starting.
func containerProblem(c *corev1.ContainerStatus) Pod {
	if c.Ready {
		return Pod{}
	}
	ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	waiting := ""
	if c.State.Waiting != nil {
		waiting = c.State.Waiting.Reason
		waiting = cmp.Or(steady[waiting], waiting)
	}
	switch {
	case waiting == "ImagePullBackOff":
		return Pod{Status: waiting, Reason: statusReason(waiting), Detail: fmt.Sprintf("container %s, image %s", c.Name, c.Image)}
	case waiting != "CrashLoopBackOff" && !starting[waiting]:
		return Pod{Status: waiting, Reason: statusReason(waiting), Detail: joinDetail("container "+c.Name, c.State.Waiting.Message)}
	case ended == nil || ended.ExitCode == 0 && waiting == "":
		return Pod{}
	case c.RestartCount > 0 || waiting == "CrashLoopBackOff":
		return Pod{Status: "CrashLoopBackOff", Reason: exitReason(ended, fleet.ReasonCrashLoopBackOff), Detail: exited(c.Name, ended)}
	default:
		return Pod{Status: "Failed", Reason: exitReason(ended, fleet.ReasonContainerFailed), Detail: exited(c.Name, ended)}
	}
}

func exited(container string, ended *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s, exit code %d", container, ended.ExitCode)
	if ended.Reason != "" && ended.Reason != "Error" && ended.Reason != "Completed" {
		text += ", " + ended.Reason
	}
	return joinDetail(text, ended.Message)
}

func joinDetail(text, message string) string {
	if message == "" {
		return text
	}
	return cut(text+": "+message, maxWarning)
}
