package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Targets is the aggregate of deployment × agent. TenantID is the deployment's tenant. Reads fill
// the names and Desired.Limits.
type Targets interface {
	// Create adds a target; a second one of the same deployment and agent is ErrExists. Create,
	// SetDesired, SetPlace and Remove record ChangeDesired.
	Create(ctx context.Context, t fleet.Target) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) (fleet.Target, error)
	// OfDeployment returns targets by the names of their agents.
	OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error)
	// OfDeployments returns the targets of many deployments in one query, each by the names of their agents. Deployments
	// without any are absent.
	OfDeployments(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Target, error)
	// PageOfDeployment returns those of its targets that match, in pages by the name of the agent.
	PageOfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, f TargetFilter) ([]fleet.Target, error)
	// Detached returns the detached targets of a tenant that match, in pages by the name of the deployment.
	Detached(ctx context.Context, tenant fleet.TenantID, f DetachedFilter) ([]fleet.Target, error)
	// List returns those of the targets that exist in the tenant, by id.
	List(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) ([]fleet.Target, error)
	// Tally counts the targets of many deployments in one query. Deployments without any are absent.
	Tally(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]TargetTally, error)
	// OfAgentAllTenants returns the targets of one agent by the tenants and names of their deployments.
	OfAgentAllTenants(ctx context.Context, id fleet.AgentID) ([]fleet.Target, error)
	// GetAllTenants returns those of the targets that are on this agent.
	GetAllTenants(ctx context.Context, agent fleet.AgentID, ids []fleet.TargetID) ([]fleet.Target, error)
	// StandingsAllTenants returns how those of the targets stand that exist, by id, whosever they are. It is
	// made for many at once, and nothing is to be decided on it but what SetObserved writes: others may
	// change what is desired meanwhile without either noticing.
	StandingsAllTenants(ctx context.Context, ids []fleet.TargetID) ([]Standing, error)
	// LeftBehindAllTenants returns the targets that have no agent any more and were on one of the name and
	// tenant of this one, by the tenants and names of their deployments, and those that left last first.
	LeftBehindAllTenants(ctx context.Context, agent fleet.Agent) ([]fleet.Target, error)
	// UnprovenAllTenants returns the targets of one agent whose LeftIn is set, in the same order as
	// OfAgentAllTenants.
	UnprovenAllTenants(ctx context.Context, agent fleet.AgentID) ([]fleet.Target, error)
	// OfGrantAllTenants returns the targets that exist by a grant.
	OfGrantAllTenants(ctx context.Context, id fleet.GrantID) ([]fleet.Target, error)
	// HandingOver returns the targets of a tenant whose Desired.HandOvers is not empty, by id.
	HandingOver(ctx context.Context, tenant fleet.TenantID) ([]fleet.Target, error)
	// Unsettled returns the targets on these agents that have a bundle, or for which one was rendered, and whose
	// agents have not said that they have put it in place. It leaves out those that are to go.
	Unsettled(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]UnsettledTarget, error)
	// Variants returns the variants that these targets are of, for those that are of one.
	Variants(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) (map[fleet.TargetID]fleet.Variant, error)
	// CountByAgentAllTenants returns how many targets each of these agents has; agents with none are absent.
	CountByAgentAllTenants(ctx context.Context, ids []fleet.AgentID) (map[fleet.AgentID]int, error)
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
	// SetDesired writes Desired of one target and records the change for its agent. A Digest names
	// a bundle of the tenant.
	SetDesired(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, d fleet.Desired) error
	// SetSourceRevision says that what is desired of a target was chosen under another source revision, and is the same
	// otherwise. It records nothing: agents see no difference.
	SetSourceRevision(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, revision int64) error
	// SetPlace writes AgentID, Variant, GrantID, DetachedAt, DetachedWhy and LeftIn. An agent of that id that the
	// deployment has a target on already is ErrExists.
	SetPlace(ctx context.Context, t fleet.Target) error
	// SetObserved writes what agents reported, in order, in a few statements whatever their number.
	// Older versions than the stored one are ignored, and a target that is not that agent's is passed
	// over. Nothing is written when nothing but AsOf is new. It returns the targets that changed, each once.
	SetObserved(ctx context.Context, tenant fleet.TenantID, reports []AgentReport) (changed []fleet.TargetID, err error)
	// Objects returns what is known of the target's objects, by group, kind, namespace and name.
	Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error)
	// Held returns the objects of a deployment whose deletion is held, SyncHeld, by agent, target, kind,
	// group, namespace and name, from behind after on; its zero value is before all.
	Held(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, after HeldObject, limit int) ([]HeldObject, error)
	// CountHeld counts what Held returns of many deployments in one query, by target. Targets without any are
	// absent, and so are those that have left or whose agent is gone.
	CountHeld(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]HeldCount, error)
	// HeldByDeployment counts the held objects of a tenant by deployment, in the order of their names; those of
	// targets that were detached or are to be deleted do not count.
	HeldByDeployment(ctx context.Context, tenant fleet.TenantID, limit int) ([]HeldDeployment, error)
	// CountObjects counts the objects of a deployment by kind, over the targets that are on an agent and were
	// not detached.
	CountObjects(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]KindCount, error)
	// Remove deletes the row: for a tombstone that was carried out, a target that was let go and
	// acknowledged, or one that its agent never heard of.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) error
}

// HeldDeployment is how much of a deployment waits to be confirmed.
type HeldDeployment struct {
	Deployment       fleet.DeploymentID
	Name             string
	Objects, Targets int
}

// KindCount is how many objects of a kind there are.
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

// HeldObject is an object whose deletion waits to be confirmed.
type HeldObject struct {
	Target fleet.TargetID
	Agent  string // its name
	fleet.ObjectStatus
}

// HeldCount is how many objects of a target wait for their deletion to be confirmed.
type HeldCount struct {
	Deployment fleet.DeploymentID
	Target     fleet.TargetID
	Count      int
}

// MaxObjects bounds the objects that are kept of one target; a report of more is cut.
const MaxObjects = 20_000

// Report is what an agent says of one target.
type Report struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	// Full says that Objects is the whole list; otherwise it holds what changed, and Gone what left.
	Full    bool
	Objects []fleet.ObjectStatus
	Gone    []fleet.ObjectRef
}

// AgentReport is a report with the agent that makes it.
type AgentReport struct {
	Agent fleet.AgentID
	// Before is how the target stood when the same transaction looked; nil has SetObserved look itself.
	Before *Standing
	Report
}

// Standing is the little of a target that reports on it are judged by.
type Standing struct {
	ID             fleet.TargetID
	TenantID       fleet.TenantID
	DeploymentID   fleet.DeploymentID
	DeploymentName string
	AgentID        fleet.AgentID
	Desired        DesiredStanding
	Observed       fleet.Observed
}

// DesiredStanding is the part of [fleet.Desired] that an agent answers to.
type DesiredStanding struct {
	fleet.Version
	Digest              string
	Tombstone, Detached bool
}

// TargetFilter narrows a listing of the targets of a deployment; zero fields match everything. Sync and
// Health are the words that users read.
type TargetFilter struct {
	Page
	Sync   fleet.SyncState
	Health fleet.Health
	Agent  string // its name
	Stale  *bool  // nothing is known of it since its agent was lost
	// Held says that nothing new is sent to the deployment: a target that something newer waits for, and
	// that has nothing more urgent to say, reads OutOfSync then.
	Held bool
}

// TargetTally is how many targets of a deployment read the same.
type TargetTally struct {
	Deployment fleet.DeploymentID
	Sync       fleet.SyncState // as if nothing held the deployment
	Health     fleet.Health
	Stale      bool   // Health is what was last known, and users read Stale
	Never      bool   // nothing is known: the agent has never connected, and nothing was ever reported
	Waiting    bool   // something newer was rendered than was sent
	Sent       string // while Waiting: the commit that was sent; "" when nothing was, and while nothing waits
	Count      int
	First      fleet.TargetID // by the name of its agent
	FirstAgent string
	StaleSince time.Time // the earliest
}

// UnsettledTarget is a target that may not have all the objects that it wants.
type UnsettledTarget struct {
	Agent          fleet.AgentID
	Deployment     fleet.DeploymentID
	DeploymentName string
	// Desired is what its agent was told, and Newest what was rendered last for it.
	Desired, Newest PlacedBundle
	DryRun          bool // it takes nothing over while it is one
}

// PlacedBundle is a bundle and the namespace of its objects that name none. Digest is empty when there is no bundle.
type PlacedBundle struct {
	Digest    string
	Namespace string
}
