package apiv1

// Diagnosis is what is wrong in a tenant, or worth knowing.
type Diagnosis struct {
	Agents       int       `json:"agents" doc:"How many there are."`
	Repositories int       `json:"repositories" doc:"How many there are."`
	Deployments  int       `json:"deployments" doc:"How many there are."`
	Findings     []Finding `json:"findings" nullable:"false"`
	Truncated    bool      `json:"truncated,omitempty" doc:"There is more than is listed."`
}

// Finding is something that is not as a user might expect.
type Finding struct {
	Part     string `json:"part" enum:"fleet,agents,repositories,deployments"`
	Severity string `json:"severity" enum:"problem,notice" doc:"A notice is what somebody has decided, such as a suspension."`
	Reason   string `json:"reason" doc:"One of FleetFrozen, TenantSuspended, EnvironmentSuspended, NoAgent, NeverConnected, Disconnected, AgentWarning, ConfigNotLive, RepositoryUnreadable, RepositoryUnused, SourceInvalid, SyncFailed, Rewound, Unhealthy, Stale, Drifted, HeldBack, PrunesHeld."`
	Subject  string `json:"subject,omitempty" doc:"Name of what it is about."`
	Message  string `json:"message"`
	Next     string `json:"next,omitempty" doc:"A command that tells more or mends it."`
}
