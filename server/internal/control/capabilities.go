package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// AgentCapable stores the capabilities of the cluster of an agent. Its charts then use variants for these
// capabilities, which are rendered if necessary: until then every target keeps its state. Equal capabilities
// change nothing.
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
			TenantID: agent.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonCapabilitiesChanged, Agent: agent.Name,
			Message: fmt.Sprintf("the cluster runs Kubernetes %s and serves %s: charts are rendered for that", c.KubeVersion, wording.Count(len(c.APIVersions), "API version")),
		})
	})
}
