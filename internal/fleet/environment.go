package fleet

import (
	"slices"
	"time"
)

// DefaultEnvironment is the name of the environment that every tenant has from the start. It selects every
// agent of its tenant.
const DefaultEnvironment = "default"

// Environment is a named place to deploy to: a set of agents, or the cluster of Push, to which one agent applies. It selects an agent that is listed in Agents, or whose labels include
// all of a non-empty MatchLabels. An environment with neither selects every agent of its tenant.
type Environment struct {
	ID          EnvironmentID
	TenantID    TenantID
	Name        string
	Agents      []string // names, sorted
	MatchLabels map[string]string
	// Push is set for a push environment, which has no selector.
	Push         *Push
	Suspension   Suspension
	SpecRevision int64 // rises with every edit
	CreatedAt    time.Time
}

// Selects reports whether agent belongs to the environment.
func (e Environment) Selects(agent Agent) bool {
	if e.TenantID != agent.TenantID || agent.Uninstalling {
		return false
	}
	if e.Push != nil {
		return e.Push.Instance == agent.ID
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

// Grant lets another tenant deploy to an environment, within limits. Both the server and the agent enforce the
// limits.
type Grant struct {
	ID            GrantID
	TenantID      TenantID // the owner of the environment
	EnvironmentID EnvironmentID
	Environment   string   // its name; filled on reads
	OwnerName     string   // filled on reads
	Grantee       TenantID // the tenant that may deploy to it
	GranteeName   string   // filled on reads
	Limits        Limits
	// ServiceAccount is "namespace/name" of the account that agents impersonate for deployments that use this
	// grant. It overrides their own setting; "" keeps it.
	ServiceAccount string
	CreatedAt      time.Time
}

// Applied returns the policy of a deployment with the overrides of the grant.
func (g Grant) Applied(p Policy) Policy {
	if g.ServiceAccount != "" {
		p.ServiceAccount = g.ServiceAccount
	}
	return p
}
