package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateEnvironment makes a named place to deploy to.
func (s *Service) CreateEnvironment(ctx context.Context, p auth.Principal, tenant string, req CreateEnvironment) (fleet.Environment, error) {
	if err := checkEnvironment(req); err != nil {
		return fleet.Environment{}, err
	}
	var out fleet.Environment
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		for _, name := range req.Agents {
			_, err := tx.Agents().ByName(ctx, t.ID, name)
			if errors.Is(err, store.ErrNotFound) {
				return fleet.Invalid("agents", "there is no agent %q in tenant %q: enrol it first", name, tenant)
			}
			if err != nil {
				return err
			}
		}
		out = fleet.Environment{
			ID: fleet.NewEnvironmentID(), TenantID: t.ID, Name: req.Name,
			Agents:      slices.Compact(slices.Sorted(slices.Values(req.Agents))),
			MatchLabels: fleet.CloneLabels(req.MatchLabels), CreatedAt: s.cfg.Now(),
		}
		if err := tx.Environments().Create(ctx, out); err != nil {
			return fmt.Errorf("environment %q: %w", req.Name, err)
		}
		return nil
	})
	return out, err
}

func checkEnvironment(req CreateEnvironment) error {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return err
	}
	if len(req.Agents) == 0 && len(req.MatchLabels) == 0 {
		return fleet.Invalid("agents", "name agents or give matchLabels; the environment %q already selects every agent", fleet.DefaultEnvironment)
	}
	return fleet.CheckLabels("matchLabels", req.MatchLabels)
}

// Environments lists environments in the order of their names.
func (s *Service) Environments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Environment, error) {
	var out []fleet.Environment
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Environments().List(ctx, t.ID, page)
		return err
	})
	return out, err
}
