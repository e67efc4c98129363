package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type audit struct{ tx *Tx }

func (s audit) Append(ctx context.Context, e fleet.AuditEvent) error {
	db := s.tx.aside()
	if e.TenantID != "" {
		db = s.tx.of(e.TenantID)
	}
	err := db.last(ctx, `INSERT INTO audit_events (tenant_id, at, actor, component, action, kind, name, resource_id, request, address, detail)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		nullable(string(e.TenantID)), micros(e.At), e.Actor, e.Component, e.Action, e.Kind, e.Name, e.ID, e.Request, e.Address, e.Detail)
	if err != nil {
		return fmt.Errorf("appending audit event %q: %w", e.Action, err)
	}
	return nil
}

func (s audit) List(ctx context.Context, tenant fleet.TenantID, f store.AuditFilter) ([]fleet.AuditEvent, error) {
	var a args
	return s.list(ctx, s.tx.of(tenant), `tenant_id = `+a.add(tenant), a, f)
}

func (s audit) ListAllTenants(ctx context.Context, f store.AuditFilter) ([]fleet.AuditEvent, error) {
	var a args
	return s.list(ctx, s.tx.aside(), `seq > `+a.add(0), a, f)
}

// list omits conditions that are not requested, so that an index can serve each combination.
func (s audit) list(ctx context.Context, db bound, where string, a args, f store.AuditFilter) ([]fleet.AuditEvent, error) {
	for _, c := range []struct{ column, value string }{
		{"actor", f.Actor}, {"action", f.Action}, {"kind", f.Kind}, {"name", f.Name},
	} {
		if c.value != "" {
			where += ` AND ` + c.column + ` = ` + a.add(c.value)
		}
	}
	if !f.Since.IsZero() {
		where += ` AND at >= ` + a.add(micros(f.Since))
	}
	if !f.Until.IsZero() {
		where += ` AND at < ` + a.add(micros(f.Until))
	}
	if f.BeforeSeq > 0 {
		where += ` AND seq < ` + a.add(f.BeforeSeq)
	}
	out, err := s.read(ctx, db, `SELECT seq, at, COALESCE(tenant_id, ''), actor, component, action, kind, name, resource_id, request, address, detail
		FROM audit_events WHERE `+where+` ORDER BY seq DESC LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing audit events: %w", err)
	}
	return out, nil
}

func (s audit) read(ctx context.Context, db bound, query string, args ...any) ([]fleet.AuditEvent, error) {
	if err := s.tx.flush(ctx); err != nil {
		return nil, err
	}
	var out []fleet.AuditEvent
	err := db.each(ctx, func(row Row) error {
		var e fleet.AuditEvent
		err := row.Scan(&e.Seq, timeInto(&e.At), &e.TenantID, &e.Actor, &e.Component, &e.Action, &e.Kind, &e.Name, &e.ID,
			&e.Request, &e.Address, &e.Detail)
		out = append(out, e)
		return err
	}, query, args...)
	return out, err
}

func (s audit) TrimAllTenants(ctx context.Context, before time.Time) (int, error) {
	if err := s.tx.flush(ctx); err != nil {
		return 0, fmt.Errorf("trimming audit events: %w", err)
	}
	n, err := s.tx.aside().exec(ctx, `DELETE FROM audit_events WHERE at < $1`, micros(before))
	if err != nil {
		return 0, fmt.Errorf("trimming audit events: %w", err)
	}
	return int(n), nil
}
