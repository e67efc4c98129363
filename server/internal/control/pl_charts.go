package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// reseatCharts gives an agent the variants of charts that are for its capabilities. No target is made.
func (s *Service) reseatCharts(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !fleet.OfChart(t.Variant) || left(t) {
			continue
		}
		d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		w, err := destinationOf(ctx, tx, d)
		if err != nil {
			return err
		}
		if _, err := s.seatOne(ctx, tx, d, w, a, t); err != nil {
			return err
		}
	}
	return nil
}
