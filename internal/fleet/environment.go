package fleet

import (
	"slices"
	"time"
)

// DefaultEnvironment is the name of the environment that every tenant starts with. It selects
// every agent of its tenant.
const DefaultEnvironment = "default"

// Environment is a named place to deploy to. An agent belongs to it when it is named in Agents,
// or when MatchLabels is not empty and all of it is among the agent's labels; an environment
// with neither selects every agent of its tenant.
type Environment struct {
	ID          EnvironmentID
	TenantID    TenantID
	Name        string
	Agents      []string // names, sorted
	MatchLabels map[string]string
	Suspension  Suspension
	Spec        int64 // rises with every edit
	CreatedAt   time.Time
}

// Selects reports whether agent belongs to the environment.
func (e Environment) Selects(agent Agent) bool {
	if e.TenantID != agent.TenantID || agent.Uninstalling {
		return false
	}
	if len(e.Agents) == 0 && len(e.MatchLabels) == 0 {
		return true
	}
	if slices.Contains(e.Agents, agent.Name) {
		return true
	}
	if len(e.MatchLabels) == 0 {
		return false
	}
	for key, want := range e.MatchLabels {
		if got, ok := agent.Labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Grant lets another tenant deploy to an environment, within limits. The server refuses what is beyond
// them, and so does the agent.
type Grant struct {
	ID            GrantID
	TenantID      TenantID // the owner of the environment
	EnvironmentID EnvironmentID
	Environment   string   // its name; filled on reads
	OwnerName     string   // filled on reads
	Grantee       TenantID // who may deploy to it
	GranteeName   string   // filled on reads
	Limits        Limits
	// ServiceAccount is who agents act as for deployments by this grant, "namespace/name", whatever those
	// say themselves; "" leaves it to them.
	ServiceAccount string
	CreatedAt      time.Time
}

// Applied is the policy of a deployment as it is by the grant.
func (g Grant) Applied(p Policy) Policy {
	if g.ServiceAccount != "" {
		p.ServiceAccount = g.ServiceAccount
	}
	return p
}
