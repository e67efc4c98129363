package apiv1

import "time"

// AccessRule lets callers reach the API servers of clusters through the tunnels of agents. Without a rule, nobody does.
type AccessRule struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Subjects     []AccessSubject `json:"subjects" nullable:"false" doc:"The callers."`
	AllAgents    bool            `json:"allAgents,omitempty" doc:"Whether the rule covers every agent of the tenant, also later ones."`
	Agents       []string        `json:"agents,omitempty" nullable:"false" doc:"Names of agents. An agent that is deleted leaves the rule."`
	Environments []string        `json:"environments,omitempty" nullable:"false" doc:"Names of environments: the rule covers the agents that they select. An environment that is deleted leaves the rule."`
	ReadOnly     bool            `json:"readOnly,omitempty" doc:"Whether the rule allows only requests that change nothing."`
	SpecRevision int64           `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	CreatedAt    time.Time       `json:"createdAt,omitzero"`
}

// AccessSubject is a caller, or a group of callers.
type AccessSubject struct {
	Kind string `json:"kind" enum:"token,person,group"`
	Name string `json:"name" minLength:"1" maxLength:"256" doc:"Name of an API token of the tenant, of a person, or of a group of the identity provider. fleet/NAME is a token of the fleet."`
}

// CreateAccessRule is the request for a rule. It sets allAgents, or at least one agent or environment.
type CreateAccessRule struct {
	Name         string          `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Subjects     []AccessSubject `json:"subjects" nullable:"false" minItems:"1" maxItems:"256"`
	AllAgents    bool            `json:"allAgents,omitempty" doc:"Cover every agent of the tenant, also later ones."`
	Agents       []string        `json:"agents,omitempty" nullable:"false" maxItems:"256" doc:"Names of agents."`
	Environments []string        `json:"environments,omitempty" nullable:"false" maxItems:"256" doc:"Names of environments that select agents."`
	ReadOnly     bool            `json:"readOnly,omitempty" doc:"Allow only requests that change nothing."`
}

// UpdateAccessRule changes a rule. Absent fields do not change.
type UpdateAccessRule struct {
	Subjects     []AccessSubject `json:"subjects,omitzero" nullable:"false" maxItems:"256" doc:"Replaces all subjects."`
	AllAgents    *bool           `json:"allAgents,omitempty" doc:"Cover every agent of the tenant. Requires that agents and environments are empty."`
	Agents       []string        `json:"agents,omitzero" nullable:"false" maxItems:"256" doc:"Replaces all agents."`
	Environments []string        `json:"environments,omitzero" nullable:"false" maxItems:"256" doc:"Replaces all environments."`
	ReadOnly     *bool           `json:"readOnly,omitempty"`
}
