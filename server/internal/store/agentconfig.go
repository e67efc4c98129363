package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// AgentConfigs holds where the configurations of agents are in Git, and what became of them. They fall
// with their agents and hold their repositories.
type AgentConfigs interface {
	// Put sets the repository of c's agent and raises Spec. What was read is forgotten when it is another
	// one than before. It records ChangeAgentConfig, and that the agent has changed.
	Put(ctx context.Context, c fleet.AgentConfig) error
	Get(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) (fleet.AgentConfig, error)
	// OfAgents returns those of these agents, by the names of the agents.
	OfAgents(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]fleet.AgentConfig, error)
	// OfRepository returns those that are in a repository, by the names of the agents.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.AgentConfig, error)
	// All returns those of a tenant, by the names of the agents.
	All(ctx context.Context, tenant fleet.TenantID) ([]fleet.AgentConfig, error)
	// SetRead records what was read: State and all that follows it. It records that the agent has changed.
	SetRead(ctx context.Context, c fleet.AgentConfig) error
	// Delete forgets where the configuration is. It records what Put does.
	Delete(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) error
}

// Declarations says which deployments files in Git declare. They fall with their deployments. Writes
// record ChangeDeployment.
type Declarations interface {
	// Put inserts or replaces that of a deployment.
	Put(ctx context.Context, d fleet.Declaration) error
	// Remove forgets that of a deployment, if there is one.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
	// OfAgent returns those of the file of an agent, released ones too, by their names.
	OfAgent(ctx context.Context, tenant fleet.TenantID, agent string) ([]fleet.Declaration, error)
	// Of returns those of these deployments.
	Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.Declaration, error)
}

// GitLabProjects is a tenant's map of projects to URLs. Writes record ChangeAgentConfig.
type GitLabProjects interface {
	// Put inserts or replaces one.
	Put(ctx context.Context, p fleet.GitLabProject) error
	Delete(ctx context.Context, tenant fleet.TenantID, project string) error
	// List returns them by project.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.GitLabProject, error)
}
