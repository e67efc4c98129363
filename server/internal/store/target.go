package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Targets stores the targets: deployment × agent. TenantID is the tenant of the deployment. Reads fill the
// names and Desired.Limits.
type Targets interface {
	// Create adds a target; a second one of the same deployment and agent is ErrExists. Create, SetDesired,
	// SetPlace, and Remove record ChangeDesired.
	Create(ctx context.Context, t fleet.Target) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) (fleet.Target, error)
	// OfDeployment returns targets, sorted by agent name.
	OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error)
	// OfDeployments returns the targets of many deployments in one query, each sorted by agent name.
	// Deployments without any are absent.
	OfDeployments(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Target, error)
	// PageOfDeployment returns matching targets of a deployment, in pages by agent name.
	PageOfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, f TargetFilter) ([]fleet.Target, error)
	// Detached returns matching detached targets of a tenant, in pages by deployment name.
	Detached(ctx context.Context, tenant fleet.TenantID, f DetachedFilter) ([]fleet.Target, error)
	// List returns those of the targets that exist in the tenant, by id.
	List(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) ([]fleet.Target, error)
	// Tally counts the targets of many deployments in one query. Deployments without any are absent.
	Tally(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]TargetTally, error)
	// OfAgentAllTenants returns the targets of one agent, sorted by tenant and name of their deployments.
	OfAgentAllTenants(ctx context.Context, id fleet.AgentID) ([]fleet.Target, error)
	// GetAllTenants returns those of the targets that are on this agent.
	GetAllTenants(ctx context.Context, agent fleet.AgentID, ids []fleet.TargetID) ([]fleet.Target, error)
	// StandingsAllTenants returns the standings of those of the targets that exist, by id, of any tenant. It is
	// fast for many, and must be used only for decisions about SetObserved: others may change the desired state
	// concurrently without a conflict.
	StandingsAllTenants(ctx context.Context, ids []fleet.TargetID) ([]Standing, error)
	// LeftBehindAllTenants returns the targets that have lost their agent and were on one with the name and
	// tenant of this one, sorted by tenant and name of their deployments, the most recent first.
	LeftBehindAllTenants(ctx context.Context, agent fleet.Agent) ([]fleet.Target, error)
	// UnprovenAllTenants returns the targets of one agent whose LeftIn is set, in the order of
	// OfAgentAllTenants.
	UnprovenAllTenants(ctx context.Context, agent fleet.AgentID) ([]fleet.Target, error)
	// OfGrantAllTenants returns the targets of a grant.
	OfGrantAllTenants(ctx context.Context, id fleet.GrantID) ([]fleet.Target, error)
	// HandingOver returns the targets of a tenant whose Desired.HandOvers is not empty, by id.
	HandingOver(ctx context.Context, tenant fleet.TenantID) ([]fleet.Target, error)
	// Unsettled returns the targets on these agents that have a bundle, or for which one was rendered, and
	// whose agents have not reported it as applied. It omits those that are being deleted.
	Unsettled(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]UnsettledTarget, error)
	// Variants returns the variants of these targets, for those that have one.
	Variants(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) (map[fleet.TargetID]fleet.Variant, error)
	// CountByAgentAllTenants returns the number of targets of each of these agents; agents with none are
	// absent.
	CountByAgentAllTenants(ctx context.Context, ids []fleet.AgentID) (map[fleet.AgentID]int, error)
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
	// SetDesired writes Desired of one target and records the change for its agent. Digest is that of a bundle
	// of the tenant.
	SetDesired(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, d fleet.Desired) error
	// SetSourceRevision changes the source revision of an otherwise unchanged desired state. It records no
	// change, because agents see no difference.
	SetSourceRevision(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, revision int64) error
	// SetPlace writes AgentID, Variant, Kinds, KindError, GrantID, DetachedAt, DetachedWhy, and LeftIn. It fails with ErrExists
	// if the deployment already has a target on that agent.
	SetPlace(ctx context.Context, t fleet.Target) error
	// SetObserved writes reports of agents, in order, in a few statements for any number. It ignores older
	// versions than the stored one, and targets of other agents. It writes nothing if only AsOf is new. It
	// returns the targets that changed, each once.
	SetObserved(ctx context.Context, tenant fleet.TenantID, reports []AgentReport) (changed []fleet.TargetID, err error)
	// Objects returns the stored objects of the target, by group, kind, namespace, and name.
	Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error)
	// Held returns the objects of a deployment whose deletion is held, SyncHeld, by agent, target, kind, group,
	// namespace, and name, starting after after; its zero value is the start.
	Held(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, after HeldObject, limit int) ([]HeldObject, error)
	// CountHeld counts the results of Held for many deployments in one query, by target. Targets without any
	// are absent, and so are detached ones and those whose agent is deleted.
	CountHeld(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]HeldCount, error)
	// HeldByDeployment counts the held objects of a tenant by deployment, sorted by name, without detached
	// targets and tombstones.
	HeldByDeployment(ctx context.Context, tenant fleet.TenantID, limit int) ([]HeldDeployment, error)
	// CountObjects counts the objects of a deployment by kind, over the attached targets with an agent.
	CountObjects(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]KindCount, error)
	// Remove deletes the row: after a tombstone was carried out, after a detachment was acknowledged, or for a
	// target that was never sent to its agent.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) error
}

// HeldDeployment is the number of held deletions of a deployment.
type HeldDeployment struct {
	Deployment       fleet.DeploymentID
	Name             string
	Objects, Targets int
}

// KindCount is the number of objects of a kind.
type KindCount struct {
	Group, Kind string
	Objects     int
}

// DetachedFilter selects detached targets. Zero fields select all. Page.AfterID is the ID of a target.
type DetachedFilter struct {
	Page
	Deployment string // its name
	Agent      string // its name, whether or not it was deleted
}

// HeldObject is an object whose deletion waits for a confirmation.
type HeldObject struct {
	Target fleet.TargetID
	Agent  string // its name
	fleet.ObjectStatus
}

// HeldCount is the number of held deletions of a target.
type HeldCount struct {
	Deployment fleet.DeploymentID
	Target     fleet.TargetID
	Count      int
}

// MaxObjects limits the objects that are stored of one target; a longer report is truncated.
const MaxObjects = 20_000

// Report is the report of an agent about one target.
type Report struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	// Full means that Objects is the complete list; otherwise it has the changed objects, and Gone the removed
	// ones.
	Full    bool
	Objects []fleet.ObjectStatus
	Gone    []fleet.ObjectRef
}

// AgentReport is a report with its agent.
type AgentReport struct {
	Agent fleet.AgentID
	// Before is the standing of the target in the same transaction; if nil, SetObserved reads it.
	Before *Standing
	Report
}

// Standing has the fields of a target that are needed to evaluate reports.
type Standing struct {
	ID             fleet.TargetID
	TenantID       fleet.TenantID
	DeploymentID   fleet.DeploymentID
	DeploymentName string
	AgentID        fleet.AgentID
	Desired        DesiredStanding
	Observed       fleet.Observed
}

// DesiredStanding is the part of [fleet.Desired] that an agent acknowledges.
type DesiredStanding struct {
	fleet.Version
	Digest              string
	Tombstone, Detached bool
}

// TargetFilter limits a listing of the targets of a deployment; zero fields match everything. Sync and Health
// are the states that users see.
type TargetFilter struct {
	Page
	Sync   fleet.SyncState
	Health fleet.Health
	Reason fleet.Reason // as users read it
	Agent  string       // its name
	Stale  *bool        // its agent was lost, so its state may be outdated
	// Held says that nothing new is sent to the deployment: a target that something newer waits for, and
	// that has nothing more urgent to say, reads OutOfSync then.
	Held bool
}

// TargetTally is the number of targets of a deployment with equal states.
type TargetTally struct {
	Deployment fleet.DeploymentID
	Sync       fleet.SyncState // as if the deployment were not held
	Health     fleet.Health
	Stale      bool   // Health is the last known value, and users see Stale
	Never      bool   // the agent never connected, and there is no report
	Waiting    bool   // a newer revision was rendered than was sent
	Sent       string // while Waiting: the commit that was sent; "" if there is none, and while nothing waits
	Count      int
	First      fleet.TargetID // by the name of its agent
	FirstAgent string
	StaleSince time.Time // the earliest
	// SyncSince and HealthSince are since when the agents report Sync and Health: of the first and of the last target.
	// Zero where the server, and not the agent, determines the state.
	SyncSince, HealthSince [2]time.Time
}

// UnsettledTarget is a target that may not have all of its desired objects.
type UnsettledTarget struct {
	Agent          fleet.AgentID
	Deployment     fleet.DeploymentID
	DeploymentName string
	// Desired is the bundle that was sent to its agent, and Newest the one that was rendered last for it.
	Desired, Newest PlacedBundle
	DryRun          bool // it takes over nothing during a dry run
}

// PlacedBundle is a bundle and the namespace of its objects that have none. Digest is empty if there is no
// bundle.
type PlacedBundle struct {
	Digest    string
	Namespace string
}
