package fleet

import "time"

// RunKind is what a SyncRun was asked to do.
type RunKind string

// The kinds of run.
const (
	RunSync     RunKind = "sync"     // to the newest commit of the source, or to a revision
	RunRollback RunKind = "rollback" // to a kept revision; needs no Git
)

// RunPhase is how far a SyncRun has come.
type RunPhase string

// The phases: Pending ─▶ Running ─▶ Succeeded | Failed | Terminated; Pending ─▶ Terminated.
const (
	RunPending    RunPhase = "Pending"
	RunRunning    RunPhase = "Running"
	RunSucceeded  RunPhase = "Succeeded"
	RunFailed     RunPhase = "Failed"
	RunTerminated RunPhase = "Terminated"
)

// Done reports whether nothing follows.
func (p RunPhase) Done() bool { return p == RunSucceeded || p == RunFailed || p == RunTerminated }

// SyncRun is an explicit request. Those of one deployment run one after another, in order.
type SyncRun struct {
	ID           RunID
	TenantID     TenantID
	DeploymentID DeploymentID
	Deployment   string // its name; filled on reads
	Seq          int64  // order within the deployment, from 1
	Kind         RunKind
	Revision     string // as asked for: a branch, tag or commit; "" is the deployment's own
	Kept         int64  // for a rollback: Revision.Seq
	Phase        RunPhase
	Reason       Reason // why it is in its phase
	Message      string
	Commit       string // what was resolved; "" before it runs
	By           string
	CreatedAt    time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	OperationID  OperationID
}

// RunTarget is what a run waits for on one target.
type RunTarget struct {
	TargetID TargetID
	Version  Version
	Done     bool
	Failed   bool
	Reason   Reason
	Message  string
}

// OperationState is how far an Operation has come.
type OperationState string

// The states of an operation.
const (
	OperationWaiting    OperationState = "Waiting"
	OperationInProgress OperationState = "InProgress"
	OperationCompleted  OperationState = "Completed"
	OperationFailed     OperationState = "Failed"
)

// Done reports whether nothing follows.
func (s OperationState) Done() bool { return s == OperationCompleted || s == OperationFailed }

// Operation is tracked asynchronous work: what a 202 answer links to.
type Operation struct {
	ID         OperationID
	TenantID   TenantID
	Action     string // "deployment.delete", "deployment.sync", "deployment.rollback", …
	Kind       string // of the resource
	Name       string // of the resource
	ResourceID string
	State      OperationState
	Message    string
	By         string
	CreatedAt  time.Time
	UpdatedAt  time.Time
	FinishedAt time.Time
}
