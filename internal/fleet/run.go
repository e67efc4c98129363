package fleet

import "time"

// RunKind is the action of a SyncRun.
type RunKind string

// The kinds of run.
const (
	RunSync     RunKind = "sync"     // to the newest commit of the source, or to a revision
	RunRollback RunKind = "rollback" // to a kept revision; needs no Git
)

// RunPhase is the progress of a SyncRun.
type RunPhase string

// The phases: Pending ─▶ Running ─▶ Succeeded | Failed | Terminated; Pending ─▶ Terminated.
const (
	RunPending    RunPhase = "Pending"
	RunRunning    RunPhase = "Running"
	RunSucceeded  RunPhase = "Succeeded"
	RunFailed     RunPhase = "Failed"
	RunTerminated RunPhase = "Terminated"
)

// Done reports whether the phase is final.
func (p RunPhase) Done() bool { return p == RunSucceeded || p == RunFailed || p == RunTerminated }

// SyncRun is an explicit request to sync or to roll back. The runs of one deployment are executed one after
// another.
type SyncRun struct {
	ID           RunID
	TenantID     TenantID
	DeploymentID DeploymentID
	Deployment   string // its name; filled on reads
	Seq          int64  // order within the deployment, from 1
	Kind         RunKind
	Revision     string // as requested: a branch, tag, or commit; "" is the revision of the deployment
	Kept         int64  // for a rollback: Revision.Seq
	Phase        RunPhase
	Reason       Reason // the cause of the phase
	Message      string
	Commit       string // the resolved commit; "" before the run starts
	By           string
	CreatedAt    time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	OperationID  OperationID
}

// Cause returns the reason and the message of the phase.
func (r SyncRun) Cause() Cause { return Cause{r.Reason, r.Message} }

// RunTarget is what a run waits for on one target.
type RunTarget struct {
	TargetID TargetID
	Version  Version
	Done     bool
	Failed   bool
	Reason   Reason
	Message  string
}

// OperationState is the progress of an Operation.
type OperationState string

// The states of an operation.
const (
	OperationWaiting    OperationState = "Waiting"
	OperationInProgress OperationState = "InProgress"
	OperationCompleted  OperationState = "Completed"
	OperationFailed     OperationState = "Failed"
)

// Done reports whether the state is final.
func (s OperationState) Done() bool { return s == OperationCompleted || s == OperationFailed }

// Operation is tracked asynchronous work; a 202 response links to it.
type Operation struct {
	ID         OperationID
	TenantID   TenantID
	Action     string // "deployment.delete", "deployment.sync", "deployment.rollback", …
	Kind       string // kind of the resource
	Name       string // name of the resource
	ResourceID string
	State      OperationState
	Message    string
	By         string
	CreatedAt  time.Time
	UpdatedAt  time.Time
	FinishedAt time.Time
}
