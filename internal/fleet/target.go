package fleet

import (
	"cmp"
	"time"
)

// Version orders the states of one target. The epoch changes when a database is restored, the generation with
// every change of the desired state.
type Version struct {
	Epoch      int64
	Generation int64
}

// Compare returns a negative number if v is older than o, and a positive one if it is newer.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Generation, o.Generation))
}

// Desired is the desired state of a target.
type Desired struct {
	Version
	Digest    string // digest of the bundle; "" before the first render and for tombstones
	Commit    string // commit of the bundle
	Namespace string
	Policy    Policy
	// SourceRevision is the one of the deployment when the bundle was chosen. While the deployment has another
	// one, bundle, namespace, and policy do not change.
	SourceRevision int64
	// HoldPrune keeps every object that left the bundle: the agent was ahead of the server, or it was enrolled
	// again. The agent reports these objects as held and keeps them until their deletion is confirmed.
	HoldPrune bool
	// Consent means that an edit of the deployment itself caused this state, so PruneLimit does not apply.
	// Protected kinds are still held.
	Consent bool
	// Confirmed has names, as from ObjectRef.String, of objects whose held deletion a user has confirmed for
	// exactly this bundle. Protected kinds are deleted only in this way.
	Confirmed []string
	// Tombstone requests the deletion of the objects of this target because the deployment was deleted. Nothing
	// else does.
	Tombstone bool
	// HoldProtected keeps the objects of protected kinds of a tombstone until their deletion is confirmed. Without
	// it, the agent stops managing them and the tombstone is carried out.
	HoldProtected bool
	// HandOvers names objects that left the target and that other deployments on the agent want, or may want.
	// The agent keeps them until they are taken over.
	HandOvers []HandOver
	// Detached asks the agent to stop managing the objects, which stay unchanged.
	Detached bool
	// Limits are those of the grant through which the target is on an agent of another tenant; filled on reads.
	Limits Limits
}

// SyncState tells whether the cluster matches the desired state.
type SyncState string

// The sync states of a target.
const (
	SyncPending SyncState = "Pending" // nothing to apply yet, or no report yet
	SyncSyncing SyncState = "Syncing" // being applied
	SyncSynced  SyncState = "Synced"  // every object is as desired
	SyncFailed  SyncState = "Failed"  // at least one object could not be applied
	SyncDeleted SyncState = "Deleted" // a tombstone is carried out
	SyncRewound SyncState = "Rewound" // the agent is ahead of the server: see invariant 4
	// SyncOutOfSync means that a newer revision exists and waits for a sync run, for the end of a suspension,
	// or for the release of a pin. Agents report it if drift is not corrected, because the policy only reports
	// drift or is a preview, or because deletions wait for a confirmation.
	SyncOutOfSync SyncState = "OutOfSync"
	SyncDetached  SyncState = "Detached" // unmanaged: its objects stay and are listed
	// SyncHeld is a state of objects only: the object left the source and is kept until a user confirms its
	// deletion.
	SyncHeld SyncState = "Held"
)

// Health is the state of objects as defined by kstatus.
type Health string

// The values of Health. Stale is specific to Kedge: the agent is not connected, so the current state is
// unknown.
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

// Worst returns the worse of two; "" is better than any other.
func Worst(a, b Health) Health {
	if a == "" {
		return b
	}
	if b == "" || healthRank[a] >= healthRank[b] {
		return a
	}
	return b
}

// Target is one deployment on one agent, the unit of delivery and status.
type Target struct {
	ID             TargetID
	TenantID       TenantID
	DeploymentID   DeploymentID
	AgentTenant    TenantID // differs from TenantID if the environment was granted
	AgentID        AgentID  // "" if the agent was deleted; AgentName has its name
	DeploymentName string   // filled on reads
	AgentName      string
	GrantID        GrantID // "" if the environment belongs to the tenant
	Variant        string  // Variant.Name; "" if the deployment has none, NoVariant together with VariantError
	// VariantError is why there is no variant for the agent, such as a missing label. The target keeps its
	// state.
	VariantError string
	// Kinds is the kind filter of the agent, as of the last placement.
	Kinds KindFilter
	// KindError is which object of the newest state Kinds refuses, and why. The target keeps its state.
	KindError string
	// DetachedAt is when it left the environment, and Why the cause. DetachedAt is zero while the target
	// belongs to it.
	DetachedAt  time.Time
	DetachedWhy string
	// LeftIn is the cluster in which a deleted agent left the objects, as reported by that agent; "" if
	// unknown. If AgentID is set too, the target was given to an agent of the same name that has not reported
	// that it is in that cluster. Until then, the server sends nothing.
	LeftIn string

	Desired  Desired
	Observed Observed
	// SyncSince is since when the agent reports Observed.Sync for Observed.Version, and HealthSince since when it reports
	// Observed.Health; filled on reads.
	SyncSince, HealthSince time.Time
}

// Observed is the last report of an agent about a target.
type Observed struct {
	Version
	Digest  string
	Sync    SyncState
	Health  Health
	Reason  Reason // cause of Sync and Health; "" if the agent sent none
	Message string
	AsOf    time.Time // zero before the first report
}

// View is the state of a target as users see it at one time. If the agent is not connected, its targets are
// Stale, never healthy.
type View struct {
	Sync       SyncState
	Health     Health
	Reason     Reason // never ""
	Message    string
	AsOf       time.Time
	StaleSince time.Time // zero unless Health is HealthStale
}

// Presence tells whether an agent is connected. The zero value means an agent that never connected or that is
// deleted.
type Presence struct {
	Connected bool
	LastSeen  time.Time // zero if it never connected; meaningless while it is connected
}

// LostSince returns since when the state of a target may be outdated, for an agent with presence p; zero if the
// state is current. It is the only rule for Stale (the store repeats it in SQL for its filters):
//
//	agent connected                               not stale
//	it was connected once, or has once reported   stale since the later of the two
//	neither                                       not stale: there is no state that could be old
func (t Target) LostSince(p Presence) time.Time {
	if p.Connected {
		return time.Time{}
	}
	// A report proves that the agent was connected. After a crash of the server it can be newer than LastSeen.
	if t.Observed.AsOf.After(p.LastSeen) {
		return t.Observed.AsOf
	}
	return p.LastSeen
}

// ViewAt returns the view of a target whose agent has presence p.
func (t Target) ViewAt(p Presence) View {
	v := View{Sync: t.Observed.Sync, Health: t.Observed.Health, Reason: t.Observed.Reason, Message: t.Observed.Message, AsOf: t.Observed.AsOf}
	if v.Sync == "" {
		v.Sync, v.Health, v.Reason = SyncPending, HealthUnknown, ReasonNotReported
	}
	if v.Sync == SyncSynced && t.Observed.Version != t.Desired.Version {
		v.Sync, v.Reason = SyncPending, ReasonApplying
	}
	v.Reason = cmp.Or(v.Reason, v.Sync.DefaultReason())
	if lost := t.LostSince(p); !lost.IsZero() {
		v.Health, v.Reason, v.StaleSince = HealthStale, ReasonAgentDisconnected, lost
	}
	return v
}

// DefaultReason is the reason of a target whose agent did not report one.
func (s SyncState) DefaultReason() Reason {
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

// ObjectRef identifies one Kubernetes object. Version is needed to access it and is not part of its identity.
type ObjectRef struct {
	Group, Version, Kind, Namespace, Name string
}

// String returns the form that users see: "Deployment.apps dude/nginx" or "Namespace dude".
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

// ObjectStatus is the status of one object of a target.
type ObjectStatus struct {
	ObjectRef
	Sync    SyncState
	Health  Health
	Reason  Reason
	Message string
}

// EventType is the severity of an event.
type EventType string

// The event types, as in Kubernetes.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// Event is a message to users about something that happened.
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
