package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type members struct{ tx *Tx }

func (s members) Put(ctx context.Context, m fleet.Member) error {
	n, err := s.tx.of(m.TenantID).exec(ctx, `INSERT INTO members (tenant_id, kind, subject, role, created_at)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (tenant_id, kind, subject) DO UPDATE SET role = excluded.role WHERE members.role <> excluded.role`,
		m.TenantID, m.Kind, m.Subject, m.Role, micros(m.CreatedAt))
	if err != nil {
		return fmt.Errorf("making %s %q a member: %w", m.Kind, m.Subject, err)
	}
	if n == 0 {
		return nil
	}
	return s.tx.recordTenant(m.TenantID)
}

func (s members) Remove(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM members WHERE tenant_id = $1 AND kind = $2 AND subject = $3`,
		tenant, kind, subject)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("removing member %s %q: %w", kind, subject, err)
	}
	return s.tx.recordTenant(tenant)
}

const memberColumns = `SELECT tenant_id, kind, subject, role, created_at FROM members `

func (s members) Get(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) (fleet.Member, error) {
	m, err := only(s.list(ctx, s.tx.of(tenant), memberColumns+`WHERE tenant_id = $1 AND kind = $2 AND subject = $3`, tenant, kind, subject))
	if err != nil {
		return fleet.Member{}, fmt.Errorf("reading member %s %q: %w", kind, subject, err)
	}
	return m, nil
}

func (s members) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Member, error) {
	out, err := s.list(ctx, s.tx.of(tenant), memberColumns+`WHERE tenant_id = $1 AND (kind, subject) > ($2, $3)
		ORDER BY kind, subject LIMIT $4`, tenant, page.After, page.AfterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing members: %w", err)
	}
	return out, nil
}

func (s members) OfAllTenants(ctx context.Context, person string, groups []string) ([]fleet.Member, error) {
	out, err := s.list(ctx, s.tx.everywhere().about(theTenants), memberColumns+`WHERE (kind = 'person' AND subject = $1)
			OR (kind = 'group' AND subject IN (SELECT value FROM json_each($2)))
		ORDER BY tenant_id, kind, subject`, person, idList(groups))
	if err != nil {
		return nil, fmt.Errorf("listing memberships of %q: %w", person, err)
	}
	return out, nil
}

func (s members) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Member, error) {
	var out []fleet.Member
	err := db.each(ctx, func(row Row) error {
		var m fleet.Member
		err := row.Scan(&m.TenantID, &m.Kind, &m.Subject, &m.Role, timeInto(&m.CreatedAt))
		out = append(out, m)
		return err
	}, query, args...)
	return out, err
}
