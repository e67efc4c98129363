package fleet

import "time"

// EngineUpgradePhase is the progress of an EngineUpgrade.
type EngineUpgradePhase string

// The phases: Running ─▶ Succeeded | Halted | RollbackFailed.
const (
	EngineUpgradeRunning        EngineUpgradePhase = "Running"
	EngineUpgradeSucceeded      EngineUpgradePhase = "Succeeded"
	EngineUpgradeHalted         EngineUpgradePhase = "Halted"
	EngineUpgradeRollbackFailed EngineUpgradePhase = "RollbackFailed"
)

// Done reports whether the phase is final.
func (p EngineUpgradePhase) Done() bool { return p != EngineUpgradeRunning }

// EngineInstancePhase is the progress of one Argo CD in an upgrade.
type EngineInstancePhase string

// The phases of an instance:
//
//	Pending ─▶ Installing ─▶ Checking ─▶ Upgraded
//	               └────────────┴─▶ RollingBack ─▶ CheckingRollback ─▶ RolledBack
//	                                    └────────────────┴─▶ RollbackFailed
const (
	EngineInstancePending          EngineInstancePhase = "Pending"
	EngineInstanceInstalling       EngineInstancePhase = "Installing"
	EngineInstanceChecking         EngineInstancePhase = "Checking"
	EngineInstanceUpgraded         EngineInstancePhase = "Upgraded"
	EngineInstanceRollingBack      EngineInstancePhase = "RollingBack"
	EngineInstanceCheckingRollback EngineInstancePhase = "CheckingRollback"
	EngineInstanceRolledBack       EngineInstancePhase = "RolledBack"
	EngineInstanceRollbackFailed   EngineInstancePhase = "RollbackFailed"
)

// EngineUpgradeHalt is how a user has halted an upgrade.
type EngineUpgradeHalt string

// The ways to halt an upgrade. A later request may change HaltAfterInstance to HaltRollBack.
const (
	HaltNone          EngineUpgradeHalt = ""
	HaltAfterInstance EngineUpgradeHalt = "AfterInstance" // finish the current instance
	HaltRollBack      EngineUpgradeHalt = "RollBack"      // roll the current instance back
)

// EngineUpgrade installs one revision of Argo CD in several instances, one after another. Each instance is checked before
// the next one starts. All of its state is stored, so that any server can continue it.
type EngineUpgrade struct {
	ID       EngineUpgradeID
	TenantID TenantID
	Name     string        // RFC 1123 label, unique in its tenant
	Revision string        // to install: a branch, tag, or commit of the repositories of the deployments
	Timeout  time.Duration // for an instance to be installed and checked, and the same for its way back
	Phase    EngineUpgradePhase
	Reason   Reason // of the phase
	Message  string
	Halt     EngineUpgradeHalt
	HaltedBy string // who requested Halt
	By       string
	// Step increases with every write. A write needs the current one, so that two servers never take the same step.
	Step       int64
	CreatedAt  time.Time
	FinishedAt time.Time
	Instances  []EngineUpgradeInstance // in order
}

// Current returns the index of the instance that is being upgraded or comes next; len(u.Instances) if all are upgraded.
func (u EngineUpgrade) Current() int {
	for i, instance := range u.Instances {
		if instance.Phase != EngineInstanceUpgraded {
			return i
		}
	}
	return len(u.Instances)
}

// EngineUpgradeInstance is one Argo CD of an upgrade. Names are those at the start of the upgrade.
type EngineUpgradeInstance struct {
	AgentID      AgentID // has this Argo CD apply its deployments
	Agent        string
	DeploymentID DeploymentID // installs this Argo CD
	Deployment   string
	CanaryID     DeploymentID // applied by this Argo CD, to check it
	Canary       string
	Phase        EngineInstancePhase
	Reason       Reason // why the instance is rolled back or not upgraded; "" otherwise
	Message      string
	Before       int64  // Revision.Seq of the deployment before the upgrade; 0 before it starts
	BeforeCommit string // of that revision
	Commit       string // installed by the upgrade; "" before it is resolved
	RunID        RunID  // the last sync run of the deployment for this instance
	// CanaryAfter is the version of the canary before the check. Only a report of a newer version counts: Argo CD got it
	// after the installation. The zero value means that the check has not been requested.
	CanaryAfter Version
	Deadline    time.Time // of the current attempt: the upgrade, or the way back
	StartedAt   time.Time
	FinishedAt  time.Time
}
