package placement

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CheckQuota fails with a QuotaError if the targets of d would exceed the quota of its tenant.
func (p *Placer) CheckQuota(ctx context.Context, tx store.Tx, t fleet.Tenant, d fleet.Deployment) error {
	w, err := DestinationOf(ctx, tx, d)
	if err != nil {
		return err
	}
	agents, err := Candidates(ctx, tx, w.Env)
	if err != nil {
		return err
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	has := make(map[fleet.AgentID]bool, len(targets))
	for _, target := range targets {
		has[target.AgentID] = true
	}
	added := 0
	for _, a := range agents {
		if w.Selects(a) && !has[a.ID] {
			added++
		}
	}
	if added == 0 {
		return nil
	}
	return quota.Check(ctx, tx, t, quota.Targets, added)
}

// wakePendingSpecs lets refused specs of an environment be evaluated again, because its agents or its grants
// have changed.
func wakePendingSpecs(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	pending, err := tx.PendingSpecs().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil {
		return err
	}
	for _, p := range pending {
		if p.Problem == "" {
			continue // it will be evaluated anyway
		}
		if err := tx.Changes().WakeRepository(ctx, p.TenantID, p.RepositoryID, store.Wake{Reason: store.WakePendingSpec}); err != nil {
			return err
		}
	}
	return nil
}
