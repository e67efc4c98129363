package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// quotaKind is what a quota bounds, in the word that users read.
type quotaKind string

const (
	quotaAgents       quotaKind = "agents"
	quotaEnvironments quotaKind = "environments"
	quotaRepositories quotaKind = "repositories"
	quotaDeployments  quotaKind = "deployments"
	quotaTargets      quotaKind = "targets"
	quotaTokens       quotaKind = "tokens"
)

// QuotaError says that a tenant has as much as it may have. Nothing was changed.
type QuotaError struct {
	Tenant string
	What   string // agents, environments, repositories, deployments, targets or tokens
	Limit  int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("tenant %q may have at most %d %s: remove some, or ask a fleet admin to raise the quota %q of the tenant",
		e.Tenant, e.Limit, e.What, e.What)
}

// withinQuota fails with a QuotaError when tenant t would have more than it may after adding so many.
// It counts in the transaction that adds, so two that add at once cannot both pass.
func (s *Service) withinQuota(ctx context.Context, tx store.Tx, t fleet.Tenant, what quotaKind, adding int) error {
	limit, count := quotaOf(tx, t.Quota, what)
	if limit <= 0 {
		return nil
	}
	have, err := count(ctx, t.ID)
	if err != nil {
		return fmt.Errorf("counting the %s of tenant %q: %w", what, t.Name, err)
	}
	if have+adding > limit {
		return &QuotaError{Tenant: t.Name, What: string(what), Limit: limit}
	}
	return nil
}

func quotaOf(tx store.Tx, q fleet.Quota, what quotaKind) (int, func(context.Context, fleet.TenantID) (int, error)) {
	switch what {
	case quotaAgents:
		return q.Agents, tx.Agents().Count
	case quotaEnvironments:
		return q.Environments, tx.Environments().Count
	case quotaRepositories:
		return q.Repositories, tx.Repositories().Count
	case quotaDeployments:
		return q.Deployments, tx.Deployments().Count
	case quotaTargets:
		return q.Targets, tx.Targets().Count
	default:
		return q.Tokens, tx.Tokens().CountAPITokens
	}
}

// bound is one number of a quota.
type bound struct {
	what  quotaKind
	limit int
}

func bounds(q fleet.Quota) []bound {
	return []bound{
		{quotaAgents, q.Agents},
		{quotaEnvironments, q.Environments},
		{quotaRepositories, q.Repositories},
		{quotaDeployments, q.Deployments},
		{quotaTargets, q.Targets},
		{quotaTokens, q.Tokens},
	}
}

func checkQuota(q fleet.Quota) error {
	for _, bound := range bounds(q) {
		if bound.limit < 0 {
			return fleet.Invalid("quota."+string(bound.what), "%d is no bound: give a positive number, or 0 for none", bound.limit)
		}
	}
	return nil
}
