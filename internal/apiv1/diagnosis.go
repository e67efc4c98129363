package apiv1

// Diagnosis lists the problems of a tenant, and notices.
type Diagnosis struct {
	Agents       int       `json:"agents" doc:"Number of agents."`
	Repositories int       `json:"repositories" doc:"Number of repositories."`
	Deployments  int       `json:"deployments" doc:"Number of deployments."`
	Findings     []Finding `json:"findings" nullable:"false"`
	Truncated    bool      `json:"truncated,omitempty" doc:"The list is incomplete."`
}

// Finding is a problem or a notice.
type Finding struct {
	Part     string `json:"part" enum:"fleet,agents,environments,repositories,deployments"`
	Severity string `json:"severity" enum:"problem,notice" doc:"A notice is an intended state, such as a suspension."`
	Reason   string `json:"reason" doc:"Identifies the finding in one word; see docs/reasons.md."`
	Subject  string `json:"subject,omitempty" doc:"Name of the affected resource."`
	Message  string `json:"message"`
	Next     string `json:"next,omitempty" doc:"A command that shows details or fixes it."`
}
