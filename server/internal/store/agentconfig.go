package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// AgentConfigs stores the locations of agent configurations in Git, and the results of reading them. They are
// deleted with their agents, and a repository with one cannot be deleted.
type AgentConfigs interface {
	// Put sets the repository of c's agent and raises Spec. If the repository changes, the result of the last
	// read is deleted. It records ChangeAgentConfig, and a change of the agent.
	Put(ctx context.Context, c fleet.AgentConfig) error
	Get(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) (fleet.AgentConfig, error)
	// OfAgents returns those of these agents, sorted by agent name.
	OfAgents(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]fleet.AgentConfig, error)
	// OfRepository returns those in a repository, sorted by agent name.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.AgentConfig, error)
	// All returns those of a tenant, sorted by agent name.
	All(ctx context.Context, tenant fleet.TenantID) ([]fleet.AgentConfig, error)
	// SetRead stores the result of a read: State and all fields after it. It records a change of the agent.
	SetRead(ctx context.Context, c fleet.AgentConfig) error
	// Delete deletes the location of a configuration. It records the same changes as Put.
	Delete(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) error
}

// Declarations stores which deployments are declared by files in Git. They are deleted with their deployments.
// Writes record ChangeDeployment.
type Declarations interface {
	// Put inserts or replaces the declaration of a deployment.
	Put(ctx context.Context, d fleet.Declaration) error
	// Remove deletes the declaration of a deployment, if there is one.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
	// OfAgent returns those of the file of an agent, including released ones, by name.
	OfAgent(ctx context.Context, tenant fleet.TenantID, agent string) ([]fleet.Declaration, error)
	// Of returns those of these deployments.
	Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.Declaration, error)
}

// GitLabProjects stores the URLs of the GitLab projects of a tenant. Writes record ChangeAgentConfig.
type GitLabProjects interface {
	// Put inserts or replaces one.
	Put(ctx context.Context, p fleet.GitLabProject) error
	Delete(ctx context.Context, tenant fleet.TenantID, project string) error
	// List returns them, sorted by project.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.GitLabProject, error)
}
