package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// viewTarget returns a target for users. Problems that users can fix come first.
func viewTarget(t fleet.Target, connections []fleet.Connection, out outlook) TargetView {
	presence := rollout.PresenceBy(connections)
	v := TargetView{Target: t, View: t.ViewAt(presence), ConnectedSince: connectedSince(connections)}
	switch {
	case !t.DetachedAt.IsZero():
		v.View.Sync, v.View.Reason, v.View.Message = fleet.SyncDetached, fleet.ReasonDetached, "detached since "+t.DetachedAt.UTC().Format(time.RFC3339)+wording.Suffix(t.DetachedWhy)
	case t.Desired.Tombstone:
	case rollout.Refused(t):
		v.View.Sync, v.View.Reason, v.View.Message = fleet.SyncFailed, fleet.ReasonLabelMissing, t.VariantError
	case t.KindError != "":
		v.View.Sync, v.View.Reason, v.View.Message = fleet.SyncFailed, fleet.ReasonKindNotAllowed, t.KindError
	case out.problem != "":
		v.View.Sync, v.View.Reason, v.View.Message = fleet.SyncFailed, out.problemReason, out.problem
	case !out.held.IsZero() && out.newest != "" && out.newest != t.Desired.Digest && calm(v.View.Sync):
		v.View.Sync, v.View.Reason, v.View.Message = fleet.SyncOutOfSync, fleet.ReasonNewRevisionWaits, "a newer revision is available: "+out.held.Message
	}
	if presence == (fleet.Presence{}) && t.AgentID != "" && v.View.Reason == fleet.ReasonNotReported {
		v.View.Reason, v.View.Message = fleet.ReasonAgentNeverConnected, fmt.Sprintf("agent %q has never connected", t.AgentName)
	}
	return v
}

// connectedSince returns since when a leading replica is connected; zero while none is.
func connectedSince(connections []fleet.Connection) time.Time {
	var since time.Time
	for _, c := range connections {
		if c.Leads() {
			since = laterOf(since, c.ConnectedAt)
		}
	}
	return since
}

// calm reports whether a sync state is not urgent.
func calm(s fleet.SyncState) bool { return s == fleet.SyncSynced || s == fleet.SyncPending }

// sumUp returns a deployment with the state of its worst target, and the most important message.
func sumUp(d fleet.Deployment, n tally, worst TargetView, repoError string, held fleet.Cause) DeploymentView {
	v := DeploymentView{Deployment: d, Counts: n.counts, Held: held, Sync: n.sync, Health: n.health}
	v.Counts.SyncSince, v.Counts.HealthSince = n.since()
	v.Running, v.RunningOther = n.runningCommit(d.Rendered.Commit)
	v.Reason, v.Message = worst.View.Reason, prefixed(worst.AgentName, worst.View.Message)
	if v.Sync == "" {
		v.Sync, v.Health = fleet.SyncPending, fleet.HealthUnknown
		v.Reason, v.Message = fleet.ReasonNoAgents, fmt.Sprintf("environment %q selects no agent yet", d.Environment)
	}
	if v.Health == "" {
		v.Health = fleet.HealthUnknown
	}
	if !held.IsZero() && v.Message == "" && (!d.Policy.Manual || v.Sync != fleet.SyncSynced) {
		v.Message = held.Message
		if v.Health != fleet.HealthStale { // else its agents come first
			v.Reason = held.Reason
		}
	}
	if never := n.counts.Never; never > 0 && n.weight == weightKnown {
		v.Message = strings.TrimPrefix(v.Message+"; "+wording.Count(never, "agent")+rollout.HaveNeverConnected(never), "; ")
	}
	reason, problem := d.SourceReason, d.SourceError
	if repoError != "" {
		reason = fleet.ReasonSourceUnreadable
		v.RepositoryError = repoError
		problem = fmt.Sprintf("repository %s: %s", d.Source.RepoURL, repoError)
	}
	if problem != "" {
		v.Sync, v.Reason, v.Message = fleet.SyncFailed, reason, problem
		if d.Rendered.Commit != "" {
			v.Message += fmt.Sprintf(" (commit %.12s continues to run)", d.Rendered.Commit)
		}
	}
	if !d.DeletedAt.IsZero() {
		v.Reason, v.Message = fleet.ReasonDeleting, "being deleted: waiting for its agents"+wording.Suffix(v.Message)
	}
	return v
}

func prefixed(agent, message string) string {
	if message == "" {
		return ""
	}
	return agent + ": " + message
}
