package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxCell bounds free text in a table; the whole of it is in -o yaml and in status.
const maxCell = 100

// maxPolicy bounds a policy in a listing, where it is beside the point.
const maxPolicy = 40

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// stale is the state of everything that is known only from before an agent was lost.
func stale(since, now time.Time) string { return fmt.Sprintf("Stale (%s)", output.Age(since, now)) }

// sentence is a message as Kubernetes prints it: one line that begins with a capital letter. A first word that is a name,
// such as that of an agent before a colon, stays as it is.
func sentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	word, _, _ := strings.Cut(s, " ")
	word = strings.TrimRight(word, ",;")
	if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// eventMessage is the message of an event. No name of a resource comes before it, so that it always begins a sentence.
func eventMessage(e apiv1.Event) string {
	word, rest, ok := strings.Cut(e.Message, ":")
	if ok && word != "" && !strings.ContainsFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return sentence(strings.ToUpper(word[:1]) + word[1:] + ":" + rest)
	}
	return sentence(e.Message)
}

// labelText is labels as kubectl prints them.
func labelText(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}

func readyText(d apiv1.Deployment) string {
	return fmt.Sprintf("%d/%d", d.Counts.Ready, d.Counts.Targets-d.Counts.Detached)
}

// revisionText is the revision that a source follows.
func revisionText(s apiv1.Source) string { return cmp.Or(s.Revision, "HEAD") }

// pathText is the folder of a source.
func pathText(s apiv1.Source) string { return cmp.Or(s.Path, ".") }

// targetSync never says that a lost agent holds what is desired: only that it did.
func targetSync(t apiv1.Target) string {
	if !t.StaleSince.IsZero() {
		return "was " + t.Sync
	}
	return t.Sync
}

// deploymentSync is the same for all targets together: one of them being lost is enough not to know.
func deploymentSync(d apiv1.Deployment) string {
	text := d.Sync + share(d.Counts.Sync[d.Sync], d.Counts)
	if d.Sync == string(fleet.SyncSynced) && d.Counts.Stale > 0 {
		text = "was " + text
	}
	if n := d.Counts.HeldPrunes; n > 0 && d.Sync == string(fleet.SyncOutOfSync) {
		text += fmt.Sprintf(" (%d held)", n)
	}
	if never := d.Counts.NeverConnected; never > 0 {
		text += fmt.Sprintf(", %d never connected", never)
	}
	return text
}

// share says how many of the targets are in a state that not all of them are in: " 2/3". It is "" for a
// state that is of the deployment itself.
func share(n int, counts apiv1.TargetCounts) string {
	all := counts.Targets - counts.Detached
	if n == 0 || n >= all {
		return ""
	}
	return fmt.Sprintf(" %d/%d", n, all)
}

func targetHealth(t apiv1.Target, now time.Time) string {
	if !t.StaleSince.IsZero() {
		return stale(t.StaleSince, now)
	}
	return t.Health
}

// deploymentHealth is the health summed up; Stale names the longest absence.
func deploymentHealth(d apiv1.Deployment, now time.Time) string {
	if d.Health != string(fleet.HealthStale) || d.Counts.StaleSince.IsZero() {
		return d.Health + share(d.Counts.Health[d.Health], d.Counts)
	}
	text := stale(d.Counts.StaleSince, now)
	if some := share(d.Counts.Stale, d.Counts); some != "" {
		text += "," + some
	}
	return text
}

// deploymentCommit is the commit that runs, with the newest one where that is held back.
func deploymentCommit(d apiv1.Deployment) string {
	text := shortCommit(d.RunningCommit)
	if d.RunningOther > 0 {
		text += fmt.Sprintf(" +%d other", d.RunningOther)
	}
	if d.Commit != "" && d.RunningCommit != "" && d.Commit != d.RunningCommit {
		text += " (newest " + shortCommit(d.Commit) + ")"
	}
	return text
}

// connectionState is how a replica is; led says whether its agent has one that leads.
func connectionState(c apiv1.Connection, led bool, now time.Time) string {
	switch {
	case c.Connected && c.Role == "standby" && !led:
		return "Standby, no leader"
	case c.Connected && c.Role == "standby":
		return "Standby"
	case c.Connected:
		return "Connected"
	}
	return stale(c.LastSeenAt, now)
}

func shortCommit(commit string) string {
	if commit == "" {
		return "-"
	}
	return commit[:min(len(commit), 12)]
}

func objectName(o apiv1.Object) string {
	return fleet.ObjectRef{Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.String()
}

// count reads as people say it: 1 target, 2 targets.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cell makes free text fit into one line of a table.
func cell(s string) string { return shortened(s, maxCell) }

// shortened is one line of at most n characters.
func shortened(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
