// Package unready explains why the pods of a workload are not ready, in the words of kubectl: the reasons of containers and
// conditions, and the warning events. It reads only the objects that it is given and sends no request.
//
// The explanation is bounded. It stays the same while a pod goes through the states of one problem: a container that crashes
// again and again is running, terminated and waiting in turn.
package unready

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
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
	// Status is the word in the STATUS column of kubectl; "" when the pod is only starting.
	Status string
	// Reason is the reason for Status in the list of package fleet: ReasonPodsNotReady for a status that has none of its
	// own, "" when Status is "".
	Reason fleet.Reason
	// Detail names the container, the image or the condition; may be empty.
	Detail string
	// Warnings are the warning events of the pod.
	Warnings []Warning
}

// Warning is a warning event.
type Warning struct{ Reason, Message string }

// String describes the warning for users, in at most maxWarning bytes.
func (w Warning) String() string { return cut(w.Reason+": "+w.Message, maxWarning) }

// String describes one pod for users.
func (p Pod) String() string {
	text := "pod " + p.Name
	if p.Status != "" {
		text += ": " + p.Status
	}
	if p.Detail != "" {
		text += " (" + p.Detail + ")"
	}
	if len(p.Warnings) > 0 {
		text += ": " + describeWarnings(p.Warnings)
	}
	return text
}

func describeWarnings(warnings []Warning) string {
	var parts []string
	for _, w := range warnings {
		parts = append(parts, w.String())
	}
	return strings.Join(parts, "; ")
}

// Explain returns why the pods are not ready; zero when none has a status or a warning. The reason is that of the first of
// them.
func Explain(pods []Pod) fleet.Cause {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Status == "" && len(p.Warnings) == 0 })
	if len(pods) == 0 {
		return fleet.Cause{}
	}
	first := pods[0]
	var parts []string
	for _, p := range pods[:min(len(pods), MaxPods)] {
		parts = append(parts, p.String())
	}
	text := cut(strings.Join(parts, "; "), maxText)
	if more := len(pods) - MaxPods; more > 0 {
		text += fmt.Sprintf("; and %d more pods", more)
	}
	return fleet.Cause{Reason: cmp.Or(first.Reason, warningReason(first.Warnings)), Message: text}
}

// ExplainController returns why the controller of a workload creates no pods; zero when it has no warnings.
func ExplainController(name string, warnings []Warning) fleet.Cause {
	if len(warnings) == 0 {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: warningReason(warnings), Message: name + ": " + describeWarnings(warnings)}
}

// Warnings returns the warnings among events, one for each reason: the longest, since events of one problem repeat it in
// shorter words. Counts and times are left out, so that a repeated event changes nothing.
func Warnings(events []corev1.Event) []Warning {
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
	var out []Warning
	for reason, message := range longest {
		out = append(out, Warning{Reason: cut(reason, maxWarning), Message: cut(message, maxWarning)})
	}
	slices.SortFunc(out, func(a, b Warning) int { return cmp.Compare(a.String(), b.String()) })
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
