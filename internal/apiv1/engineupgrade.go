package apiv1

import "time"

// CreateEngineUpgrade is the request to install a revision of Argo CD in several instances, one after another.
type CreateEngineUpgrade struct {
	Name           string                        `json:"name" maxLength:"63"`
	Revision       string                        `json:"revision" doc:"Branch, tag, or commit to install."`
	TimeoutSeconds int                           `json:"timeoutSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Time for each instance to be installed and checked, and the same time for its way back; default 600."`
	Instances      []CreateEngineUpgradeInstance `json:"instances" minItems:"1" maxItems:"100" nullable:"false" doc:"The instances in the order of their upgrade."`
}

// CreateEngineUpgradeInstance names one Argo CD.
type CreateEngineUpgradeInstance struct {
	Agent      string `json:"agent" doc:"The agent that has this Argo CD apply its deployments."`
	Deployment string `json:"deployment" doc:"The manual deployment that installs this Argo CD."`
	Canary     string `json:"canary" doc:"A deployment on the agent: the upgraded Argo CD must sync it before the next instance starts."`
}

// HaltEngineUpgrade is the request to halt an upgrade.
type HaltEngineUpgrade struct {
	RollBack bool `json:"rollBack,omitempty" doc:"Roll the current instance back; by default, it is finished first."`
}

// EngineUpgrade installs a revision of Argo CD in several instances, one after another.
type EngineUpgrade struct {
	ID             string                  `json:"id"`
	Name           string                  `json:"name"`
	Revision       string                  `json:"revision"`
	TimeoutSeconds int                     `json:"timeoutSeconds"`
	Phase          string                  `json:"phase" enum:"Running,Succeeded,Halted,RollbackFailed"`
	Reason         string                  `json:"reason,omitempty" doc:"Identifier of the cause of the phase; see docs/reasons.md."`
	Message        string                  `json:"message,omitempty"`
	Halt           string                  `json:"halt,omitempty" enum:"AfterInstance,RollBack" doc:"How a user halted the upgrade."`
	HaltedBy       string                  `json:"haltedBy,omitempty"`
	By             string                  `json:"by,omitempty"`
	CreatedAt      time.Time               `json:"createdAt,omitzero"`
	FinishedAt     time.Time               `json:"finishedAt,omitzero"`
	Instances      []EngineUpgradeInstance `json:"instances" nullable:"false"`
}

// EngineUpgradeInstance is one Argo CD of an upgrade.
type EngineUpgradeInstance struct {
	Agent        string    `json:"agent"`
	Deployment   string    `json:"deployment"`
	Canary       string    `json:"canary"`
	Phase        string    `json:"phase" enum:"Pending,Installing,Checking,Upgraded,RollingBack,CheckingRollback,RolledBack,RollbackFailed"`
	Reason       string    `json:"reason,omitempty" doc:"Why the instance waits, is rolled back, or was not upgraded; see docs/reasons.md."`
	Message      string    `json:"message,omitempty"`
	Before       int64     `json:"before,omitempty" doc:"Number of the kept revision of the deployment before the upgrade."`
	BeforeCommit string    `json:"beforeCommit,omitempty"`
	Commit       string    `json:"commit,omitempty" doc:"The commit that the revision resolved to."`
	Run          string    `json:"run,omitempty" doc:"ID of the last sync run of the deployment for this upgrade."`
	Deadline     time.Time `json:"deadline,omitzero" doc:"End of the timeout of the current attempt."`
	StartedAt    time.Time `json:"startedAt,omitzero"`
	FinishedAt   time.Time `json:"finishedAt,omitzero"`
}
