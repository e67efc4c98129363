// Package unready says why the pods of a workload are not ready, in the words that a person finds with
// kubectl: the reasons of containers and conditions, and the warnings among the events. It looks at what it is
// given and asks no cluster.
//
// What it says is bounded, and stays the same while a pod goes through the states of one and the same
// problem: a container that crashes again and again is running, terminated and waiting in turn.
package unready

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// The bounds of what is said.
const (
	MaxPods     = 3   // that are named; of the others only the number is said
	maxWarnings = 2   // per pod
	maxWarning  = 200 // bytes
	maxText     = 700 // bytes in all: a status message has room for a kibibyte
)

// Pod is a pod that is not ready, and why.
type Pod struct {
	Name, UID string
	// Reason is what Kubernetes calls the problem; "" when the pod is only starting, as far as it tells itself.
	Reason string
	// Detail says which container, image or condition that is about; may be empty.
	Detail string
	// Warnings are what the events of the pod say.
	Warnings []string
}

// String is one pod as users read it.
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

// Describe is what users read of all of them; "" when there is nothing to say.
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
