package control

import (
	"cmp"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Conditions returns the state of the target in the form that Kubernetes uses. A transition that the server cannot date has
// no time.
func (v TargetView) Conditions() []fleet.Condition {
	synced := fleet.Condition{
		Type: fleet.ConditionSynced, Status: syncStatus(v.View.Sync), Cause: syncCause(v.View.Sync, v.viewCause(), v.Observed.Reason),
		ObservedGeneration: v.Observed.Generation,
	}
	switch {
	case !v.DetachedAt.IsZero():
		synced.LastTransition = v.DetachedAt
	case v.View.Sync == v.Observed.Sync: // as the agent reported it
		synced.LastTransition = v.SyncSince
	}
	healthy := fleet.Condition{
		Type: fleet.ConditionHealthy, Status: healthStatus(v.View.Health), Cause: healthCause(v.View.Health, v.View.Sync, v.viewCause()),
		LastTransition: laterOf(v.HealthSince, v.ConnectedSince), ObservedGeneration: v.Observed.Generation,
	}
	if !v.View.StaleSince.IsZero() {
		healthy.LastTransition = v.View.StaleSince
	}
	return []fleet.Condition{synced, healthy}
}

func (v TargetView) viewCause() fleet.Cause {
	return fleet.Cause{Reason: v.View.Reason, Message: v.View.Message}
}

// Conditions returns the state of the deployment in the form that Kubernetes uses. Those of the targets are summed up: a
// condition that is not True is so at least since LastTransition. A transition that the server cannot date has no time.
func (v DeploymentView) Conditions() []fleet.Condition {
	cause := fleet.Cause{Reason: v.Reason, Message: v.Message}
	inForce := v.SpecRevision
	if v.Pending != nil {
		inForce = v.Pending.SpecRevision - 1 // or an earlier one
	}
	out := []fleet.Condition{
		{
			Type: fleet.ConditionSynced, Status: syncStatus(v.Sync), Cause: syncCause(v.Sync, cause, ""),
			LastTransition: v.syncSince(), ObservedGeneration: inForce,
		},
		{
			Type: fleet.ConditionHealthy, Status: healthStatus(v.Health), Cause: healthCause(v.Health, v.Sync, cause),
			LastTransition: v.Counts.HealthSince, ObservedGeneration: inForce,
		},
		v.sourceReady(),
	}
	if !v.Held.IsZero() {
		out = append(out, fleet.Condition{Type: fleet.ConditionHeld, Status: fleet.ConditionTrue, Cause: v.Held, LastTransition: v.heldSince(), ObservedGeneration: v.SpecRevision})
	}
	return out
}

// syncSince is zero if the server, and not an agent, determines the sync state.
func (v DeploymentView) syncSince() time.Time {
	switch {
	case v.Pending != nil || v.RepositoryError != "":
		return time.Time{}
	case v.SourceError != "":
		return v.SourceSince
	}
	return v.Counts.SyncSince
}

func (v DeploymentView) heldSince() time.Time {
	switch v.Held.Reason {
	case fleet.ReasonSuspended:
		return v.Suspension.At
	case fleet.ReasonPinned, fleet.ReasonRunTerminated:
		return v.Pin.At
	}
	return time.Time{}
}

// sourceReady tells whether the newest revision of the source is rendered. It is about the pending spec, if there is one.
func (v DeploymentView) sourceReady() fleet.Condition {
	c := fleet.Condition{Type: fleet.ConditionSourceReady, Status: fleet.ConditionTrue, LastTransition: v.SourceSince, ObservedGeneration: v.SpecRevision}
	switch {
	case v.Pending != nil:
		c.Status, c.LastTransition = fleet.ConditionFalse, time.Time{}
		c.Cause = fleet.Cause{Reason: v.Pending.Reason, Message: v.Pending.String()}
		if v.Pending.Reason == fleet.ReasonSourceNotRead {
			c.Status = fleet.ConditionUnknown
		}
	case v.SourceError != "":
		c.Status, c.Cause = fleet.ConditionFalse, fleet.Cause{Reason: cmp.Or(v.SourceReason, fleet.ReasonRenderFailed), Message: v.SourceError}
	case v.RepositoryError != "":
		c.Status, c.LastTransition = fleet.ConditionFalse, time.Time{}
		c.Cause = fleet.Cause{Reason: fleet.ReasonSourceUnreadable, Message: v.RepositoryError}
	case v.Rendered.Commit == "":
		c.Status, c.Cause = fleet.ConditionUnknown, fleet.Cause{Reason: fleet.ReasonSourceNotRead}
	default:
		c.Cause = fleet.Cause{Reason: fleet.ReasonRendered}
	}
	return c
}

// Conditions returns the state of the agent in the form that Kubernetes uses.
func (v AgentView) Conditions() []fleet.Condition {
	c := fleet.Condition{Type: fleet.ConditionConnected, Status: fleet.ConditionFalse, LastTransition: v.LastSeenAt, ObservedGeneration: v.SpecRevision}
	switch {
	case v.Connected:
		c.Status, c.Cause, c.LastTransition = fleet.ConditionTrue, fleet.Cause{Reason: fleet.ReasonAgentConnected}, time.Time{}
		for _, conn := range v.Connections {
			if conn.Connected() && !conn.Standby {
				c.LastTransition = conn.ConnectedAt
			}
		}
	case v.LastSeenAt.IsZero():
		c.Cause = fleet.Cause{Reason: fleet.ReasonAgentNeverConnected, Message: "it has never connected"}
	default:
		c.Cause = fleet.Cause{Reason: fleet.ReasonAgentDisconnected, Message: "it was last seen at " + v.LastSeenAt.UTC().Format(time.RFC3339)}
	}
	if v.ConfigWarning.IsZero() {
		return []fleet.Condition{c}
	}
	return []fleet.Condition{c, {Type: fleet.ConditionConfigReady, Status: fleet.ConditionFalse, Cause: v.ConfigWarning}}
}

// Reason identifies the state of the agent.
func (v AgentView) Reason() fleet.Reason {
	conditions := v.Conditions()
	return conditions[0].Reason
}

// Conditions returns the state of the repository in the form that Kubernetes uses.
func (v RepositoryView) Conditions() []fleet.Condition {
	c := fleet.Condition{
		Type: fleet.ConditionReadable, Status: fleet.ConditionTrue, Cause: fleet.Cause{Reason: v.State(), Message: v.Error},
		LastTransition: v.StateSince, ObservedGeneration: v.SpecRevision,
	}
	switch {
	case v.Error != "":
		c.Status = fleet.ConditionFalse
	case v.CheckedAt.IsZero():
		c.Status = fleet.ConditionUnknown
	}
	return []fleet.Condition{c}
}

func syncStatus(s fleet.SyncState) fleet.ConditionStatus {
	switch s {
	case fleet.SyncSynced:
		return fleet.ConditionTrue
	case fleet.SyncPending, fleet.SyncSyncing:
		return fleet.ConditionUnknown
	}
	return fleet.ConditionFalse
}

// syncCause is the cause of the sync state: that of the whole view, unless that is about something else.
func syncCause(s fleet.SyncState, of fleet.Cause, observed fleet.Reason) fleet.Cause {
	switch {
	case s == fleet.SyncSynced:
		return fleet.Cause{Reason: fleet.ReasonSynced}
	case of.Reason == fleet.ReasonAgentDisconnected: // that is about the health
		return fleet.Cause{Reason: cmp.Or(observed, s.DefaultReason()), Message: of.Message}
	}
	return of
}

func healthStatus(h fleet.Health) fleet.ConditionStatus {
	switch h {
	case fleet.HealthCurrent:
		return fleet.ConditionTrue
	case fleet.HealthUnknown, fleet.HealthStale, "":
		return fleet.ConditionUnknown
	}
	return fleet.ConditionFalse
}

// healthReasons are the reasons of a health that nothing more is known of.
var healthReasons = map[fleet.Health]fleet.Reason{
	fleet.HealthCurrent: fleet.ReasonAvailable, fleet.HealthInProgress: fleet.ReasonProgressing, fleet.HealthTerminating: fleet.ReasonTerminating,
	fleet.HealthNotFound: fleet.ReasonNotFound, fleet.HealthStale: fleet.ReasonAgentDisconnected, fleet.HealthFailed: fleet.ReasonUnhealthy,
}

// healthCause is the cause of the health: that of the whole view if it is about health.
func healthCause(h fleet.Health, s fleet.SyncState, of fleet.Cause) fleet.Cause {
	switch {
	case h == fleet.HealthUnknown || h == "":
		if of.Reason == fleet.ReasonNotReported || of.Reason == fleet.ReasonAgentNeverConnected || of.Reason == fleet.ReasonNoAgents {
			return fleet.Cause{Reason: fleet.ReasonNotReported}
		}
		return fleet.Cause{Reason: fleet.ReasonHealthUnknown}
	case h == fleet.HealthCurrent, h == fleet.HealthStale, s != fleet.SyncSynced, of.Reason == fleet.ReasonSynced:
		return fleet.Cause{Reason: healthReasons[h]}
	}
	return of
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
