package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// AgentCapable records what the cluster of an agent offers. The charts on it are then those that were
// rendered for just that, or are rendered: until that is done every target keeps what it has. The same twice
// changes nothing.
func (s *Service) AgentCapable(ctx context.Context, who fleet.Agent, c fleet.Capabilities) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, who.TenantID, who.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil // deleted meanwhile
		}
		if err != nil || agent.Capabilities == c.Hash() {
			return err
		}
		if err := tx.Agents().SetCapabilities(ctx, agent.TenantID, agent.ID, c); err != nil {
			return err
		}
		agent.Capabilities = c.Hash()
		if err := s.placer.ReassignCharts(ctx, tx, agent); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: agent.TenantID, Type: fleet.EventNormal, Reason: "CapabilitiesChanged", Agent: agent.Name,
			Message: fmt.Sprintf("the cluster runs Kubernetes %s and serves %s: charts are rendered for that", c.KubeVersion, wording.Count(len(c.APIVersions), "API version")),
		})
	})
}
