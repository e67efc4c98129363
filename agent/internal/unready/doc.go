// Package unready explains why the pods of a workload are not ready, in the words of kubectl: the reasons of containers and
// conditions, and the warning events. It reads only the objects that it is given and sends no request.
//
// The explanation is bounded. It stays the same while a pod goes through the states of one problem: a container that crashes
// again and again is running, terminated and waiting in turn.
package unready

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// Limits of the explanation.
const (
	MaxPods     = 3   // that are named; the others are counted
	maxWarnings = 2   // per pod
	maxWarning  = 200 // bytes
	maxText     = 700 // bytes in all: a status message has room for a kibibyte
)

// Pod is a pod that is not ready, and the reason.
type Pod struct {
	Name, UID string
	// Reason is the reason that Kubernetes gives; "" when the pod is only starting.
	Reason string
	// Detail names the container, the image or the condition; may be empty.
	Detail string
	// Warnings are the messages of the warning events of the pod.
	Warnings []string
}

// String describes one pod for users.
func (p Pod) String() string {
	text := "pod " + p.Name
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	if p.Detail != "" {
		text += " (" + p.Detail + ")"
	}
	if len(p.Warnings) > 0 {
		text += ": " + strings.Join(p.Warnings, "; ")
	}
	return text
}

// Describe describes the pods for users; "" when none has a reason or a warning.
func Describe(pods []Pod) string {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Reason == "" && len(p.Warnings) == 0 })
	if len(pods) == 0 {
		return ""
	}
	var parts []string
	for _, p := range pods[:min(len(pods), MaxPods)] {
		parts = append(parts, p.String())
	}
	text := cut(strings.Join(parts, "; "), maxText)
	if more := len(pods) - MaxPods; more > 0 {
		text += fmt.Sprintf("; and %d more pods", more)
	}
	return text
}

// Warnings are the messages of warnings among events, one for each reason: the longest, since events of one
// problem repeat it in shorter words. Counts and times are left out, so that a repeated event changes nothing.
func Warnings(events []corev1.Event) []string {
	longest := map[string]string{}
	for _, e := range events {
		message := strings.Join(strings.Fields(e.Message), " ")
		was, known := longest[e.Reason]
		if e.Type == corev1.EventTypeWarning && (!known || len(message) > len(was) || len(message) == len(was) && message < was) {
			longest[e.Reason] = message
		}
	}
	if len(longest) > 1 {
		delete(longest, "BackOff") // it only says that something else failed before
	}
	var out []string
	for reason, message := range longest {
		out = append(out, cut(reason+": "+message, maxWarning))
	}
	slices.Sort(out)
	return out[:min(len(out), maxWarnings)]
}

// cut shortens text to so many bytes, at the beginning of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most -= len("…"); !utf8.RuneStart(text[most]); most-- {
	}
	return text[:most] + "…"
}
