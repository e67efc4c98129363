package quota

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Kind is what a quota bounds, in the word that users read.
type Kind string

// The things that a quota bounds.
const (
	Agents       Kind = "agents"
	Environments Kind = "environments"
	Repositories Kind = "repositories"
	Deployments  Kind = "deployments"
	Targets      Kind = "targets"
	Tokens       Kind = "tokens"
)

// ExceededError says that a tenant has as much as it may have. Nothing was changed.
type ExceededError struct {
	Tenant string
	What   string // agents, environments, repositories, deployments, targets or tokens
	Limit  int
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("tenant %q may have at most %d %s: remove some, or ask a fleet admin to raise the quota %q of the tenant",
		e.Tenant, e.Limit, e.What, e.What)
}

// Check fails with a ExceededError when tenant t would have more than it may after adding so many.
// It counts in the transaction that adds, so two that add at once cannot both pass.
func Check(ctx context.Context, tx store.Tx, t fleet.Tenant, what Kind, adding int) error {
	limit, count := quotaOf(tx, t.Quota, what)
	if limit <= 0 {
		return nil
	}
	have, err := count(ctx, t.ID)
	if err != nil {
		return fmt.Errorf("counting the %s of tenant %q: %w", what, t.Name, err)
	}
	if have+adding > limit {
		return &ExceededError{Tenant: t.Name, What: string(what), Limit: limit}
	}
	return nil
}

func quotaOf(tx store.Tx, q fleet.Quota, what Kind) (int, func(context.Context, fleet.TenantID) (int, error)) {
	switch what {
	case Agents:
		return q.Agents, tx.Agents().Count
	case Environments:
		return q.Environments, tx.Environments().Count
	case Repositories:
		return q.Repositories, tx.Repositories().Count
	case Deployments:
		return q.Deployments, tx.Deployments().Count
	case Targets:
		return q.Targets, tx.Targets().Count
	default:
		return q.Tokens, tx.Tokens().CountAPITokens
	}
}
