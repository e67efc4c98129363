package fleet

import (
	"cmp"
	"time"
)

// Version orders the states of one target. The epoch changes when a database is restored, the
// generation with every change of what is desired.
type Version struct {
	Epoch      int64
	Generation int64
}

// Compare is negative when v is older than o, positive when it is newer.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Generation, o.Generation))
}

// Desired is what a target shall be.
type Desired struct {
	Version
	Digest    string // of the bundle; "" when nothing was rendered yet or on a tombstone
	Commit    string // where the bundle came from
	Namespace string
	Policy    Policy
	// SourceRevision is that of the deployment when the bundle was chosen. While the deployment has another one,
	// bundle, namespace and policy stay together as they are.
	SourceRevision int64
	// HoldPrune keeps everything that has left the bundle: the server found the agent ahead of itself, or the
	// agent was enrolled again. The agent marks what it keeps so, and holds it until it is confirmed.
	HoldPrune bool
	// Consent says that an edit of the deployment itself has brought this state, so that what it no
	// longer names may be deleted whatever PruneLimit says; protected kinds are held all the same.
	Consent bool
	// Confirmed names objects, as ObjectRef.String does, whose held deletion a user has confirmed for
	// just this bundle. Protected kinds are deleted only so.
	Confirmed []string
	// Tombstone asks for the objects of this target to be deleted, and says that the deployment
	// was deleted on purpose. Nothing else does.
	Tombstone bool
	// HandOvers names what has left the target and other deployments on its agent want, or may want: the
	// agent keeps that until they have taken it over.
	HandOvers []HandOver
	// Detached asks the agent to let go: the objects stay as they are, and nobody manages them.
	Detached bool
	// Limits of the grant by which the target is on another tenant's agent; filled on reads.
	Limits Limits
}

// SyncState says whether the cluster holds what is desired.
type SyncState string

// The sync states of a target.
const (
	SyncPending SyncState = "Pending" // nothing to apply yet, or not yet heard of
	SyncSyncing SyncState = "Syncing" // being applied
	SyncSynced  SyncState = "Synced"  // every object is as desired
	SyncFailed  SyncState = "Failed"  // at least one object could not be applied
	SyncDeleted SyncState = "Deleted" // a tombstone was carried out
	SyncRewound SyncState = "Rewound" // the agent is ahead of the server: see invariant 4
	// SyncOutOfSync is Kedge's own view: a newer revision is there and waits, for a sync run, for the
	// end of a suspension, or for the release of a pin. An agent says it of what it found changed and
	// leaves so, because the policy is to report drift or to try only, or because deletions wait to be confirmed.
	SyncOutOfSync SyncState = "OutOfSync"
	SyncDetached  SyncState = "Detached" // let go: its objects stay and are listed
	// SyncHeld is said of objects only: not in the source any more, and kept until a user confirms that
	// they may be deleted.
	SyncHeld SyncState = "Held"
)

// Health is the state of objects in the words of kstatus.
type Health string

// The health words. Stale is Kedge's own: the agent has not been heard of, so nothing is known.
const (
	HealthCurrent     Health = "Current"
	HealthInProgress  Health = "InProgress"
	HealthFailed      Health = "Failed"
	HealthTerminating Health = "Terminating"
	HealthNotFound    Health = "NotFound"
	HealthUnknown     Health = "Unknown"
	HealthStale       Health = "Stale"
)

// rank orders health from best to worst.
var healthRank = map[Health]int{
	HealthCurrent: 0, HealthInProgress: 1, HealthTerminating: 2, HealthNotFound: 3,
	HealthUnknown: 4, HealthStale: 5, HealthFailed: 6,
}

// Worst returns the worse of two; the empty health is better than any.
func Worst(a, b Health) Health {
	if a == "" {
		return b
	}
	if b == "" || healthRank[a] >= healthRank[b] {
		return a
	}
	return b
}

// Target is one deployment on one agent: the unit that everything is counted in.
type Target struct {
	ID             TargetID
	TenantID       TenantID
	DeploymentID   DeploymentID
	AgentTenant    TenantID // not TenantID when the environment was granted
	AgentID        AgentID  // "" when the agent was deleted; AgentName tells which
	DeploymentName string   // filled on reads
	AgentName      string
	GrantID        GrantID // "" when the environment is the tenant's own
	Variant        string  // Variant.Name; "" when the deployment has none, NoVariant with VariantError
	// VariantError is why there is no variant for the agent, such as a label that it does not have. The target keeps
	// what it has.
	VariantError string
	// DetachedAt is when it left the environment; Why says how. Zero while it belongs.
	DetachedAt  time.Time
	DetachedWhy string
	// LeftIn is the cluster in which a deleted agent has left it, as that agent has told it; "" when it
	// did not. While AgentID is set too, an agent of the same name has been given it that has not yet
	// said that it is in that cluster, and nothing is sent.
	LeftIn string

	Desired  Desired
	Observed Observed
	// SyncSince and HealthSince are when Observed.Sync and Observed.Health last changed; filled on reads.
	SyncSince, HealthSince time.Time
}

// Observed is what an agent last said of a target.
type Observed struct {
	Version
	Digest  string
	Sync    SyncState
	Health  Health
	Reason  Reason // why Sync and Health are as they are; "" when the agent did not say
	Message string
	AsOf    time.Time // zero before the first report
}

// View is what a target reads like to a user at a moment: an agent that is not connected makes
// its targets Stale, never Healthy.
type View struct {
	Sync       SyncState
	Health     Health
	Reason     Reason // never ""
	Message    string
	AsOf       time.Time
	StaleSince time.Time // zero unless Health is HealthStale
}

// Presence is what is known of whether an agent is there. The zero value is one that was never heard of,
// or that there is none any more.
type Presence struct {
	Connected bool
	LastSeen  time.Time // zero when it never connected; of no meaning while it is connected
}

// LostSince is since when nothing new is known of a target whose agent is as p says; zero when what is
// known is how it is. It is the one rule for what reads Stale (the store has it once more, in SQL, for
// its filters):
//
//	agent connected                               not stale
//	it was connected once, or has once reported   stale since the later of the two
//	neither                                       not stale: nothing is known that could be old
func (t Target) LostSince(p Presence) time.Time {
	if p.Connected {
		return time.Time{}
	}
	// A report is a sign of life, and after a crash of the server the newer of the two.
	if t.Observed.AsOf.After(p.LastSeen) {
		return t.Observed.AsOf
	}
	return p.LastSeen
}

// ViewAt derives what users see while the agent of the target is as p says.
func (t Target) ViewAt(p Presence) View {
	v := View{Sync: t.Observed.Sync, Health: t.Observed.Health, Reason: t.Observed.Reason, Message: t.Observed.Message, AsOf: t.Observed.AsOf}
	if v.Sync == "" {
		v.Sync, v.Health, v.Reason = SyncPending, HealthUnknown, ReasonNotReported
	}
	if v.Sync == SyncSynced && t.Observed.Version != t.Desired.Version {
		v.Sync, v.Reason = SyncPending, ReasonApplying
	}
	v.Reason = cmp.Or(v.Reason, defaultReason(v.Sync))
	if lost := t.LostSince(p); !lost.IsZero() {
		v.Health, v.Reason, v.StaleSince = HealthStale, ReasonAgentDisconnected, lost
	}
	return v
}

// defaultReason is the reason of a target whose agent did not report one.
func defaultReason(s SyncState) Reason {
	switch s {
	case SyncSynced:
		return ReasonSynced
	case SyncFailed:
		return ReasonObjectsFailed
	case SyncDeleted:
		return ReasonDeleted
	case SyncDetached:
		return ReasonDetached
	case SyncRewound:
		return ReasonRewound
	case SyncOutOfSync:
		return ReasonDrifted
	case SyncHeld:
		return ReasonPruneHeld
	}
	return ReasonApplying
}

// ObjectRef names one Kubernetes object. Version is part of how it is reached, not of what it is.
type ObjectRef struct {
	Group, Version, Kind, Namespace, Name string
}

// String is how users read it: "Deployment.apps dude/nginx" or "Namespace dude".
func (r ObjectRef) String() string {
	kind := r.Kind
	if r.Group != "" {
		kind += "." + r.Group
	}
	if r.Namespace == "" {
		return kind + " " + r.Name
	}
	return kind + " " + r.Namespace + "/" + r.Name
}

// ObjectStatus is what is known of one object of a target.
type ObjectStatus struct {
	ObjectRef
	Sync    SyncState
	Health  Health
	Reason  Reason
	Message string
}

// EventType tells good news from bad.
type EventType string

// The event types, with the words of Kubernetes.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// Event is something that happened, told to users.
type Event struct {
	Seq        int64
	At         time.Time
	TenantID   TenantID
	Type       EventType
	Reason     Reason
	Agent      string // name, "" when none
	Deployment string // name, "" when none
	Object     string // ObjectRef.String(), "" when none
	Message    string
}
