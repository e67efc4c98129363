package placement

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ReassignCharts gives an agent the variants of charts that are for its capabilities. No target is made.
func (p *Placer) ReassignCharts(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !fleet.OfChart(t.Variant) || HasLeft(t) {
			continue
		}
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		w, err := DestinationOf(ctx, tx, d)
		if err != nil {
			return err
		}
		if _, err := p.assignOne(ctx, tx, d, w, a, t); err != nil {
			return err
		}
	}
	return nil
}
