package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// audit records the action of p in its transaction: a rollback removes the record too. The caller sets tenant,
// action, resource, and detail.
func (s *Service) audit(ctx context.Context, tx store.Tx, p auth.Principal, e fleet.AuditEvent) error {
	e.At, e.Actor, e.Component, e.Request, e.Address = s.cfg.Now(), p.Name, p.Component, p.Request, p.Address
	return tx.Audit().Append(ctx, e)
}

// Audit lists the audit log of a tenant, newest first; without a tenant, that of the fleet, which only a fleet
// admin may read.
func (s *Service) Audit(ctx context.Context, p auth.Principal, tenant string, f store.AuditFilter) ([]fleet.AuditEvent, error) {
	var out []fleet.AuditEvent
	err := s.store.View(ctx, func(tx store.Tx) error {
		if tenant == "" {
			if err := fleetAdmin(p); err != nil {
				return err
			}
			var err error
			out, err = tx.Audit().ListAllTenants(ctx, f)
			return err
		}
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Audit().List(ctx, t.ID, f)
		return err
	})
	return out, err
}

// Events lists the newest matching events, oldest first.
func (s *Service) Events(ctx context.Context, p auth.Principal, tenant string, f store.EventFilter) ([]fleet.Event, error) {
	var out []fleet.Event
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Events().List(ctx, t.ID, f)
		return err
	})
	return out, err
}
