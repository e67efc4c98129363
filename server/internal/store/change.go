package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

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
	ChangeTenant      ChangeKind = "tenant"     // its quota, suspension or members
	ChangeSettings    ChangeKind = "settings"   // of the whole fleet; TenantID is ""
	ChangeCredential  ChangeKind = "credential" // ID is the credential's
	ChangeRun         ChangeKind = "run"        // a sync run, of DeploymentID
	ChangeOperation   ChangeKind = "operation"
	// ChangeAgentConfig is about where the configuration of AgentID is in Git; without AgentID, about what
	// the files of the tenant mean.
	ChangeAgentConfig ChangeKind = "agentconfig"
	ChangePush        ChangeKind = "push" // a ref of the repository ID may have moved: Ref
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
	Ref          string             // for push; "" is any
	At           time.Time
}

// Changes is the outbox. Sequence numbers grow in the order of commits: a reader that has seen n
// never meets a lower one later.
type Changes interface {
	// AfterAllTenants returns changes with a higher sequence number than seq, in order. A limit of
	// 0 means 100.
	AfterAllTenants(ctx context.Context, seq int64, limit int) ([]Change, error)
	// RecordPush says that a ref of a repository may have moved, for the replica that reads it.
	RecordPush(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, ref string) error
	// After is AfterAllTenants for one tenant, without pushes.
	After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]Change, error)
	// Last returns the newest sequence number, 0 before the first.
	Last(ctx context.Context) (int64, error)
	// First returns the oldest one that is kept, 0 when none is: a cursor below it has lost records.
	First(ctx context.Context) (int64, error)
	// Trim keeps the newest n, and the very newest always.
	Trim(ctx context.Context, n int) error
}
