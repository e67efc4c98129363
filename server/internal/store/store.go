// Package store is the persistence contract of the server: one transaction type, split by
// aggregate, and the sentinels that every implementation returns. Implementations live below it
// (sqlite/) and all pass storetest.
//
// One change is one transaction: rows, generation and [Change] records commit together
// (invariant 10). Every query takes the tenant that it is for (invariant 7); the few that cross
// tenants say so in their names. No error of a database driver leaves this room.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

var (
	// ErrNotFound says that no such row exists in that tenant.
	ErrNotFound = errors.New("not found")
	// ErrExists says that a unique name or key is taken.
	ErrExists = errors.New("already exists")
	// ErrReadOnly says that a write was tried inside View.
	ErrReadOnly = errors.New("read-only transaction")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
)

// Store opens transactions. It is safe for concurrent use.
type Store interface {
	// Update runs fn in one write transaction and commits if fn returns nil. It may wait for
	// another writer. fn must not keep tx, must not call the store again, and may be run again
	// after a serialisation failure. After ErrExists and ErrNotFound fn may go on; any other error,
	// and a reference to a row that does not exist, fails the whole transaction.
	Update(ctx context.Context, fn func(tx Tx) error) error
	// View runs fn on one consistent snapshot. Writes fail with ErrReadOnly.
	View(ctx context.Context, fn func(tx Tx) error) error
	// Notify returns a channel that gets a value soon after any commit that recorded changes,
	// by this process or another. It is a hint with no content and is coalesced: the cursor over
	// Changes.After is the guarantee. The subscription ends with ctx; the channel is never closed.
	Notify(ctx context.Context) <-chan struct{}
	Close() error
}

// Tx is one transaction, split by aggregate. It belongs to one goroutine.
type Tx interface {
	Tenants() Tenants
	Agents() Agents
	Connections() Connections
	Tokens() Tokens
	Environments() Environments
	Repositories() Repositories
	Deployments() Deployments
	Targets() Targets
	Bundles() Bundles
	Events() Events
	Changes() Changes
}

// Page bounds a listing by key: the rows whose name (or sequence number) comes after After.
type Page struct {
	After string // exclusive; "" starts at the beginning
	// AfterID is the id of the row that After names, where names are not unique: a deployment and
	// those before it that are on their way out. "" passes over all of that name.
	AfterID string
	Limit   int // at most this many; 0 means 100
}

// Tenants is the aggregate of walls.
type Tenants interface {
	Create(ctx context.Context, t fleet.Tenant) error
	ByName(ctx context.Context, name string) (fleet.Tenant, error)
	List(ctx context.Context) ([]fleet.Tenant, error)
}

// Agents is the aggregate of agent identities.
type Agents interface {
	Create(ctx context.Context, a fleet.Agent) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.Agent, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error)
	// List returns agents in the order of their names.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Agent, error)
	// Delete removes an agent with its tokens, connections and targets.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error
}

// Connections holds the newest connection of each replica of each agent.
type Connections interface {
	// Put inserts or replaces the row of c's (agent, replica).
	Put(ctx context.Context, c fleet.Connection) error
	// Close marks the row of that session as ended. A row that a newer session has replaced is
	// left alone, and closed is false.
	Close(ctx context.Context, session fleet.SessionID, lastSeen, at time.Time) (closed bool, err error)
	// CloseAllTenants ends every open row: what a server that starts knows about its connections.
	// lastSeen is taken when the row's own is older.
	CloseAllTenants(ctx context.Context, lastSeen time.Time) error
	// List returns all rows of the tenant, by agent and replica.
	List(ctx context.Context, tenant fleet.TenantID) ([]fleet.Connection, error)
	// OfAgent returns the rows of one agent, by replica.
	OfAgent(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) ([]fleet.Connection, error)
	// Beat records that this server was alive at t; LastBeat returns the newest such time, zero
	// before the first.
	Beat(ctx context.Context, t time.Time) error
	LastBeat(ctx context.Context) (time.Time, error)
}

// Tokens holds hashes of tokens, never tokens.
type Tokens interface {
	CreateAgentToken(ctx context.Context, t fleet.AgentToken) error
	// AgentTokenByHashAllTenants finds the token that a caller presented; revoked ones too.
	AgentTokenByHashAllTenants(ctx context.Context, hash []byte) (fleet.AgentToken, error)
	// AgentTokens returns the tokens of one agent, oldest first; revoked ones too.
	AgentTokens(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) ([]fleet.AgentToken, error)
	// RevokeAgentToken ends a token. The first time stands.
	RevokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error
	CreateAPIToken(ctx context.Context, t fleet.APIToken) error
	APITokenByHash(ctx context.Context, hash []byte) (fleet.APIToken, error)
	CountAPITokens(ctx context.Context) (int, error)
}

// Environments is the aggregate of named places.
type Environments interface {
	Create(ctx context.Context, e fleet.Environment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) (fleet.Environment, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Environment, error)
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Environment, error)
}

// Repositories is the aggregate of Git URLs, unique per tenant.
type Repositories interface {
	Create(ctx context.Context, r fleet.Repository) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) (fleet.Repository, error)
	// GetAllTenants finds a repository by its id alone, for webhooks, which carry no tenant.
	GetAllTenants(ctx context.Context, id fleet.RepositoryID) (fleet.Repository, error)
	ByURL(ctx context.Context, tenant fleet.TenantID, url string) (fleet.Repository, error)
	List(ctx context.Context, tenant fleet.TenantID) ([]fleet.Repository, error)
	// ListAllTenants returns every repository that a deployment which is not deleted uses.
	ListAllTenants(ctx context.Context) ([]fleet.Repository, error)
	// SetChecked records a look at the remote; message is "" when it could be read.
	SetChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string) error
}

// Deployments is the aggregate of deployments. Reads fill Environment and Source.RepoURL.
type Deployments interface {
	Create(ctx context.Context, d fleet.Deployment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.Deployment, error)
	// ByName finds the deployment that is not deleted.
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Deployment, error)
	// List returns deployments in the order of their names, those on their way out included.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Deployment, error)
	// OfRepository and OfEnvironment return those that are not deleted, by name.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.Deployment, error)
	OfEnvironment(ctx context.Context, tenant fleet.TenantID, env fleet.EnvironmentID) ([]fleet.Deployment, error)
	// SetRendered records the newest whole revision and clears SourceError. Its Digest names a
	// bundle of the tenant. It and the next two record nothing when nothing but the time is new.
	SetRendered(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Rendered) error
	SetSourceError(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, message string, at time.Time) error
	// MarkDeleted sets DeletedAt; the name is free again at once.
	MarkDeleted(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, at time.Time) error
	// Remove deletes the row for good; it fails with ErrExists while targets are left.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
}

// Targets is the aggregate of deployment × agent. Reads fill the names.
type Targets interface {
	// Create adds a target; a second one of the same deployment and agent is ErrExists. Create,
	// SetDesired and Remove, and an agent's Delete for each of its targets, record ChangeDesired.
	Create(ctx context.Context, t fleet.Target) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) (fleet.Target, error)
	// OfDeployment returns targets by the names of their agents, OfAgent by those of their deployments.
	OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error)
	OfAgent(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) ([]fleet.Target, error)
	// ListByDeployments returns the targets of many deployments in one query, by the names of
	// deployments and agents.
	ListByDeployments(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.Target, error)
	// CountByAgent returns how many targets each agent of the tenant has; agents with none are absent.
	CountByAgent(ctx context.Context, tenant fleet.TenantID) (map[fleet.AgentID]int, error)
	// SetDesired writes Desired of one target and records the change for its agent. A Digest names
	// a bundle of the tenant.
	SetDesired(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, d fleet.Desired) error
	// SetObserved writes what an agent reported. Older versions than the stored one are ignored;
	// a target of another agent is ErrNotFound. Nothing is written when nothing but AsOf is new.
	SetObserved(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, r Report) error
	// Objects returns what is known of the target's objects, by group, kind, namespace and name.
	Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error)
	// Remove deletes the row: only for a tombstone that was carried out.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) error
}

// Report is what an agent says of one target.
type Report struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	// Full says that Objects is the whole list; otherwise it holds what changed, and Gone what left.
	Full    bool
	Objects []fleet.ObjectStatus
	Gone    []fleet.ObjectRef
}

// Bundles holds rendered objects by digest, per tenant.
type Bundles interface {
	// Put keeps b; a bundle that is there already is left alone.
	Put(ctx context.Context, b fleet.Bundle) error
	Get(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	// DeleteUnused removes bundles that no deployment and no target names and that are older than before.
	DeleteUnused(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error)
}

// EventFilter narrows a listing of events; zero fields match everything.
type EventFilter struct {
	Agent, Deployment string
	AfterSeq          int64 // newer than this
	Limit             int   // at most this many of the newest; 0 means 100
}

// Events is the log of what happened, for users.
type Events interface {
	Append(ctx context.Context, e fleet.Event) error
	// List returns the newest events that match, oldest first.
	List(ctx context.Context, tenant fleet.TenantID, f EventFilter) ([]fleet.Event, error)
	// Trim keeps the newest n per tenant.
	Trim(ctx context.Context, n int) error
}

// ChangeKind says what a change record is about.
type ChangeKind string

// The kinds of change.
const (
	ChangeAgent       ChangeKind = "agent"
	ChangeConnection  ChangeKind = "connection"
	ChangeToken       ChangeKind = "token"
	ChangeEnvironment ChangeKind = "environment"
	ChangeRepository  ChangeKind = "repository"
	ChangeDeployment  ChangeKind = "deployment"
	ChangeDesired     ChangeKind = "desired" // of the target ID, on AgentID
	ChangeStatus      ChangeKind = "status"  // of the target ID, on AgentID
	ChangeEvent       ChangeKind = "event"
)

// Change is one record of the outbox: something that others may want to know has changed.
// Implementations record it in the transaction that makes the change.
type Change struct {
	Seq          int64
	TenantID     fleet.TenantID
	Kind         ChangeKind
	ID           string             // of the row, "" for events
	AgentID      fleet.AgentID      // for connection, token, desired, status
	DeploymentID fleet.DeploymentID // for deployment, desired, status
	At           time.Time
}

// Changes is the outbox. Sequence numbers grow in the order of commits: a reader that has seen n
// never meets a lower one later.
type Changes interface {
	// AfterAllTenants returns changes with a higher sequence number than seq, in order. A limit of
	// 0 means 100.
	AfterAllTenants(ctx context.Context, seq int64, limit int) ([]Change, error)
	// After is AfterAllTenants for one tenant.
	After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]Change, error)
	// Last returns the newest sequence number, 0 before the first.
	Last(ctx context.Context) (int64, error)
	// First returns the oldest one that is kept, 0 when none is: a cursor below it has lost records.
	First(ctx context.Context) (int64, error)
	// Trim keeps the newest n, and the very newest always.
	Trim(ctx context.Context, n int) error
}
