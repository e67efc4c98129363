package placement

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ReassignCharts gives an agent the chart variants for its capabilities. It creates no target.
func (p *Placer) ReassignCharts(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return err
	}
	return p.reassign(ctx, tx, a, targets, func(t fleet.Target) bool { return fleet.OfChart(t.Variant) })
}
