package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// PendingSpecs stores the specs that are not in force yet, at most one for each deployment. Writes record
// ChangeDeployment. Reads fill Environment and Source.RepoURL.
type PendingSpecs interface {
	// Put inserts or replaces the pending spec of a deployment. It raises Spec of the deployment and gives the
	// pending spec that number.
	Put(ctx context.Context, p fleet.PendingSpec) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.PendingSpec, error)
	// Of returns those of these deployments that have one.
	Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.PendingSpec, error)
	// OfRepository returns those whose source is in a repository, of deployments that are not deleted.
	OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.PendingSpec, error)
	// OfEnvironmentAllTenants returns those with an environment, which may be granted to other tenants.
	OfEnvironmentAllTenants(ctx context.Context, env fleet.EnvironmentID) ([]fleet.PendingSpec, error)
	// SetProblem writes Reason, Problem, and EditedAt. It records no change if nothing is new.
	SetProblem(ctx context.Context, p fleet.PendingSpec) error
	// Remove removes a pending spec without putting it into force, and raises Spec of the deployment. It does
	// nothing if there is none.
	Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error
}
