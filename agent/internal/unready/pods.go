package unready

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The reasons of containers that alternate while one problem lasts, and the one of each that is said.
var steady = map[string]string{
	"ErrImagePull":     "ImagePullBackOff",
	"ImagePullBackOff": "ImagePullBackOff",
	"CrashLoopBackOff": "CrashLoopBackOff",
}

// starting are reasons of containers that every pod goes through.
var starting = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// Pods returns those that are neither ready nor done nor on their way out: those with a reason first, then the
// oldest.
func Pods(pods []corev1.Pod) []Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || isReady(&p)
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := make([]Pod, 0, len(pods))
	for i := range pods {
		reason, detail := problem(&pods[i])
		out = append(out, Pod{Name: pods[i].Name, UID: string(pods[i].UID), Reason: reason, Detail: detail})
	}
	slices.SortStableFunc(out, func(a, b Pod) int {
		if (a.Reason == "") == (b.Reason == "") {
			return 0
		}
		return cmp.Compare(b.Reason, a.Reason)
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

// problem is why a pod is not ready; "" when it does not say.
func problem(pod *corev1.Pod) (reason, detail string) {
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return "Pending", cut(c.Message, maxWarning)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if reason, detail := containerProblem(&statuses[i]); reason != "" {
				return reason, detail
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, "Failed"), cut(pod.Status.Message, maxWarning)
	}
	return "", ""
}

// containerProblem is why a container is not ready; "" when it is, or is only starting.
func containerProblem(c *corev1.ContainerStatus) (reason, detail string) {
	if c.Ready {
		return "", ""
	}
	ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	waiting := ""
	if c.State.Waiting != nil {
		waiting = c.State.Waiting.Reason
		waiting = cmp.Or(steady[waiting], waiting)
	}
	switch {
	case waiting == "ImagePullBackOff":
		return waiting, fmt.Sprintf("container %s, image %s", c.Name, c.Image)
	case waiting != "CrashLoopBackOff" && !starting[waiting]:
		return waiting, joinDetail("container "+c.Name, c.State.Waiting.Message)
	case ended == nil || ended.ExitCode == 0 && waiting == "":
		return "", ""
	case c.RestartCount > 0 || waiting == "CrashLoopBackOff":
		return "CrashLoopBackOff", exited(c.Name, ended)
	default:
		return "Failed", exited(c.Name, ended)
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
