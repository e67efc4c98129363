package unready

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func container(name string, edit func(*corev1.ContainerStatus)) corev1.Pod {
	status := corev1.ContainerStatus{Name: name, Image: "example.com/web:1"}
	edit(&status)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", UID: "u"},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}},
	}
}

func waiting(reason, message string) func(*corev1.ContainerStatus) {
	return func(s *corev1.ContainerStatus) {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
}

func TestPodsSayWhyTheyAreNotReady(t *testing.T) {
	t.Parallel()
	killed := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	for _, c := range []struct {
		reason string
		pod    corev1.Pod
		want   string
		is     fleet.Reason
	}{
		{"an image that cannot be pulled", container("main", waiting("ErrImagePull", "rpc error")), "pod web-0: ImagePullBackOff (container main, image example.com/web:1)", fleet.ReasonImagePullBackOff},
		{"the same, a moment later", container("main", waiting("ImagePullBackOff", "back-off")), "pod web-0: ImagePullBackOff (container main, image example.com/web:1)", fleet.ReasonImagePullBackOff},
		{"a container that crashes", container("main", func(s *corev1.ContainerStatus) {
			s.RestartCount, s.LastTerminationState.Terminated = 3, killed
			waiting("CrashLoopBackOff", "back-off 40s")(s)
		}), "pod web-0: CrashLoopBackOff (container main, exit code 137, OOMKilled)", fleet.ReasonOOMKilled},
		{"the same while it runs", container("main", func(s *corev1.ContainerStatus) {
			s.RestartCount, s.LastTerminationState.Terminated, s.State.Running = 3, killed, &corev1.ContainerStateRunning{}
		}), "pod web-0: CrashLoopBackOff (container main, exit code 137, OOMKilled)", fleet.ReasonOOMKilled},
		{"the same when it has ended", container("main", func(s *corev1.ContainerStatus) {
			s.RestartCount, s.State.Terminated = 3, killed
		}), "pod web-0: CrashLoopBackOff (container main, exit code 137, OOMKilled)", fleet.ReasonOOMKilled},
		{"the pod of a Job that failed", container("main", func(s *corev1.ContainerStatus) {
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
		}), "pod web-0: Failed (container main, exit code 2)", fleet.ReasonContainerFailed},
		{"a pod that was evicted", corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"},
		}, "pod web-0: Evicted (low on memory)", fleet.ReasonEvicted},
		{"a pod without a node", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}},
		}}, "pod web-0: Pending (0/3 nodes are available)", fleet.ReasonUnschedulable},
		{"a pod that is starting", container("main", waiting("ContainerCreating", "")), "", ""},
		{"a pod that is done", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, "", ""},
		{"a pod that is ready", corev1.Pod{Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}, "", ""},
		{"a container that exits with an error again and again", container("main", func(s *corev1.ContainerStatus) {
			s.RestartCount, s.State.Terminated = 3, &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
		}), "pod web-0: CrashLoopBackOff (container main, exit code 1)", fleet.ReasonCrashLoopBackOff},
		{"an image name that is invalid", container("main", waiting("InvalidImageName", "no")), "pod web-0: InvalidImageName (container main: no)", fleet.ReasonInvalidImageName},
		{"a Secret that is missing", container("main", waiting("CreateContainerConfigError", `secret "a" not found`)),
			`pod web-0: CreateContainerConfigError (container main: secret "a" not found)`, fleet.ReasonCreateContainerConfigError},
		{"a status that the list does not have", container("main", waiting("SomethingNew", "")), "pod web-0: SomethingNew (container main)", fleet.ReasonPodsNotReady},
		{"a pod with a scheduling gate", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "gated"}},
		}}, "pod web-0: Pending (gated)", fleet.ReasonPodsNotReady},
	} {
		if diff := cmp.Diff(fleet.Cause{Reason: c.is, Message: c.want}, Explain(Pods([]corev1.Pod{c.pod}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// covers: A21 (bounded)
func TestDescriptionIsBounded(t *testing.T) {
	t.Parallel()
	var pods []Pod
	for i := range 100 {
		pods = append(pods, Pod{Name: fmt.Sprint("web-", i), Status: "Failed", Detail: strings.Repeat("ä", 1000)})
	}
	text := Explain(pods).Message
	if len(text) > 800 || !strings.Contains(text, "and 97 more pods") || !strings.Contains(text, "pod web-0") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	var events []corev1.Event
	for i := range 100 {
		events = append(events, corev1.Event{Type: corev1.EventTypeWarning, Reason: fmt.Sprint("R", i), Message: strings.Repeat("x ", 5000)})
	}
	if got := Warnings(events); len(got) != maxWarnings || len(got[0].String()) > maxWarning {
		t.Errorf("%d warnings of %d bytes", len(got), len(got[0].String()))
	}
}

// covers: D8
func TestRepeatedEventsSayTheSame(t *testing.T) {
	t.Parallel()
	pull := corev1.Event{Type: corev1.EventTypeWarning, Reason: "Failed", Message: `Failed to pull image "a": not found`, Count: 1}
	short := corev1.Event{Type: corev1.EventTypeWarning, Reason: "Failed", Message: "Error: ErrImagePull"}
	back := corev1.Event{Type: corev1.EventTypeWarning, Reason: "BackOff", Message: "Back-off pulling image"}
	normal := corev1.Event{Type: corev1.EventTypeNormal, Reason: "Pulling", Message: "Pulling"}
	want := []Warning{{"Failed", `Failed to pull image "a": not found`}}
	again := pull
	again.Count, again.LastTimestamp = 9, metav1.Now()
	for _, events := range [][]corev1.Event{{pull}, {short, back, normal, again}, {again, back, short}} {
		if diff := cmp.Diff(want, Warnings(events)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestWarningsHaveReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason   string
		warnings []Warning
		want     fleet.Reason
	}{
		{"a volume", []Warning{{"FailedMount", "no such Secret"}}, fleet.ReasonFailedMount},
		{"a probe", []Warning{{"Unhealthy", "Readiness probe failed"}}, fleet.ReasonProbeFailed},
		{"the first that is listed", []Warning{{"SomethingNew", "x"}, {"FailedMount", "y"}}, fleet.ReasonFailedMount},
		{"one that is not listed", []Warning{{"SomethingNew", "x"}}, fleet.ReasonPodsNotReady},
	} {
		if got := Explain([]Pod{{Name: "web-0", Warnings: c.warnings}}); got.Reason != c.want {
			t.Errorf("%s: got %+v, want %s", c.reason, got, c.want)
		}
	}
	if got := ExplainController("ReplicaSet web", []Warning{{"FailedCreate", "exceeded quota"}}); got.Reason != fleet.ReasonFailedCreate {
		t.Errorf("got %+v, want %s", got, fleet.ReasonFailedCreate)
	}
	if got := ExplainController("ReplicaSet web", nil); !got.IsZero() {
		t.Errorf("got %+v, want none without a warning", got)
	}
}
