package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

type tenants struct{ *tx }

func (s tenants) Create(ctx context.Context, t fleet.Tenant) error {
	err := s.insert(ctx, `INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		t.ID, t.Name, micros(t.CreatedAt))
	if err != nil {
		return fmt.Errorf("creating tenant %q: %w", t.Name, err)
	}
	return nil
}

func (s tenants) ByName(ctx context.Context, name string) (fleet.Tenant, error) {
	t, err := only(s.list(ctx, `SELECT id, name, created_at FROM tenants WHERE name = $1`, name))
	if err != nil {
		return fleet.Tenant{}, fmt.Errorf("reading tenant %q: %w", name, err)
	}
	return t, nil
}

func (s tenants) List(ctx context.Context) ([]fleet.Tenant, error) {
	out, err := s.list(ctx, `SELECT id, name, created_at FROM tenants ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	return out, nil
}

func (s tenants) list(ctx context.Context, query string, args ...any) ([]fleet.Tenant, error) {
	var out []fleet.Tenant
	err := s.each(ctx, func(rows *sql.Rows) error {
		var t fleet.Tenant
		err := rows.Scan(&t.ID, &t.Name, timeInto(&t.CreatedAt))
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}
