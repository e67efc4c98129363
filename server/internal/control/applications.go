package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentApplications stores the Applications of Argo CD that an agent lists and does not manage.
func (s *Service) AgentApplications(ctx context.Context, agent fleet.Agent, l fleet.ForeignApplications) error {
	err := s.store.Update(ctx, func(tx store.Tx) error { return tx.Agents().SetApplications(ctx, agent.TenantID, agent.ID, l) })
	if errors.Is(err, store.ErrNotFound) {
		return nil // deleted meanwhile
	}
	return err
}

// ForeignApplications returns the Applications of Argo CD that an agent lists and does not manage.
func (s *Service) ForeignApplications(ctx context.Context, p auth.Principal, tenant, agent string) (fleet.ForeignApplications, error) {
	var out fleet.ForeignApplications
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, agent)
		if err != nil {
			return err
		}
		out, err = tx.Agents().Applications(ctx, a.TenantID, a.ID)
		return err
	})
	return out, err
}
