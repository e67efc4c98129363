package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// ChangeKind is the kind of a change record.
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
	// ChangeAgentConfig is about the location of the configuration of AgentID in Git. Without AgentID, it is
	// about the meaning of the files of the tenant.
	ChangeAgentConfig ChangeKind = "agentconfig"
	// ChangeEngineUpgrade is about an upgrade of Argo CD.
	ChangeEngineUpgrade ChangeKind = "engineupgrade"
	ChangeAccessRule    ChangeKind = "accessrule"
	ChangeWake          ChangeKind = "wake" // the repository ID has to be read: Reason, Ref
)

// WakeReason says why a repository has to be read.
type WakeReason string

// The reasons to read a repository.
const (
	WakePush           WakeReason = "Push"           // a ref may have moved
	WakeRefresh        WakeReason = "Refresh"        // a user asked for it
	WakeTargetAhead    WakeReason = "TargetAhead"    // a target has a newer version than the server
	WakeVariantMissing WakeReason = "VariantMissing" // a target needs a variant that is not rendered
	WakePendingSpec    WakeReason = "PendingSpec"    // the obstacle of a pending spec may be gone
	WakeAgentConfig    WakeReason = "AgentConfig"    // the configuration of an agent has to be read again
)

// Wake is the reason to read a repository, and the ref that it concerns; "" is any.
type Wake struct {
	Reason WakeReason
	Ref    string
}

// Change is one record of the outbox: something that others may want to know has changed.
// Implementations record it in the transaction that makes the change.
type Change struct {
	Seq          int64
	TenantID     fleet.TenantID
	Kind         ChangeKind
	ID           string             // of the row, "" for events
	AgentID      fleet.AgentID      // for connection, token, desired, status
	DeploymentID fleet.DeploymentID // for deployment, desired, status
	Reason       WakeReason         // for wake
	Ref          string             // for wake; "" is any
	At           time.Time
}

// Changes is the outbox. Sequence numbers grow in the order of commits: a reader that has seen n never gets a
// lower number later.
type Changes interface {
	// AfterAllTenants returns changes with a higher sequence number than seq, in order. A limit of 0 means 100.
	AfterAllTenants(ctx context.Context, seq int64, limit int) ([]Change, error)
	// WakeRepository makes the replica that reads a repository read it now.
	WakeRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, wake Wake) error
	// After is AfterAllTenants for one tenant, without wakes.
	After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]Change, error)
	// Last returns the newest sequence number, 0 before the first.
	Last(ctx context.Context) (int64, error)
	// First returns the oldest number that is kept, 0 if none is: a cursor below it has lost records.
	First(ctx context.Context) (int64, error)
	// Trim keeps the newest n, and always the newest one.
	Trim(ctx context.Context, n int) error
}
