package control

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// trimEvery × the busiest fleet stays far below keptChanges.
	trimEvery    = 10 * time.Minute
	keptChanges  = 200_000
	keptEvents   = 10_000 // per tenant
	keptRuns     = 50     // done ones, per deployment
	keptUpgrades = 50     // done ones, per tenant
	// A bundle is stored in the transaction that refers to it; the age only protects a running render.
	unusedBundleAge = time.Hour
	auditAge        = 90 * 24 * time.Hour
	operationAge    = 24 * time.Hour      // after they were done
	tokenAge        = 30 * 24 * time.Hour // after they expired or were revoked
	replyAge        = 24 * time.Hour
	connectionAge   = 24 * time.Hour // after they ended; the newest of each agent stays
)

// runHousekeeping trims old data, on one replica at a time. It and the heartbeat are the only places with
// timers that no event can replace.
func (s *Service) runHousekeeping(ctx context.Context) error {
	s.member.Lead(ctx, "housekeeping", func(ctx context.Context) {
		tick := time.NewTicker(trimEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.trim(ctx)
			}
		}
	})
	return nil
}

// chore is one trim, in its own transaction: each is short for waiting writers.
type chore struct {
	name string
	do   func(tx store.Tx) error
}

// trim runs every chore; a failed one runs again next time, and does not affect the others.
func (s *Service) trim(ctx context.Context) {
	chores := s.fleetChores(ctx)
	var tenants []fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		tenants, err = listing.All(func(page store.Page) ([]fleet.Tenant, error) { return tx.Tenants().List(ctx, page) },
			func(t fleet.Tenant) string { return t.Name })
		return err
	})
	if err != nil {
		s.cfg.Log.Error("keeping house", "chore", "listing tenants", obs.KeyError, err)
	}
	for _, t := range tenants {
		chores = append(chores, s.tenantChores(ctx, t.ID)...)
	}
	for _, c := range chores {
		if ctx.Err() != nil {
			return
		}
		if err := s.store.Update(ctx, c.do); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("keeping house", "chore", c.name, obs.KeyError, err)
		}
	}
}

func (s *Service) fleetChores(ctx context.Context) []chore {
	now := s.cfg.Now()
	return []chore{
		{"changes", func(tx store.Tx) error { return tx.Changes().Trim(ctx, keptChanges) }},
		{"audit", func(tx store.Tx) error {
			_, err := tx.Audit().TrimAllTenants(ctx, now.Add(-auditAge))
			return err
		}},
		{"operations", func(tx store.Tx) error {
			_, err := tx.Operations().TrimAllTenants(ctx, now.Add(-operationAge))
			return err
		}},
		{"tokens", func(tx store.Tx) error {
			_, err := tx.Tokens().TrimAPITokens(ctx, now.Add(-tokenAge))
			return err
		}},
		{"replies", func(tx store.Tx) error {
			_, err := tx.Replies().Trim(ctx, now.Add(-replyAge))
			return err
		}},
	}
}

func (s *Service) tenantChores(ctx context.Context, tenant fleet.TenantID) []chore {
	now := s.cfg.Now()
	return []chore{
		{"events", func(tx store.Tx) error { return tx.Events().Trim(ctx, tenant, keptEvents) }},
		{"runs", func(tx store.Tx) error { return tx.Runs().Trim(ctx, tenant, keptRuns) }},
		{"engine upgrades", func(tx store.Tx) error { return tx.EngineUpgrades().Trim(ctx, tenant, keptUpgrades) }},
		{"connections", func(tx store.Tx) error {
			_, err := tx.Connections().Trim(ctx, tenant, now.Add(-connectionAge))
			return err
		}},
		{"bundles", func(tx store.Tx) error {
			_, err := tx.Bundles().DeleteUnused(ctx, tenant, now.Add(-unusedBundleAge))
			return err
		}},
		{"push environments", func(tx store.Tx) error { return s.placer.PlacePush(ctx, tx, tenant) }},
		{"missing namespaces", func(tx store.Tx) error { return s.deleteMissingNamespace(ctx, tx, tenant) }},
	}
}
