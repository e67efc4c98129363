package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// grants are read by two tenants: tenant_id owns the environment, grantee_tenant_id may use it. A statement is
// bound to the tenant of the caller.
type grants struct{ tx *Tx }

const grantColumns = `SELECT id, tenant_id, environment_id, environment_name, owner_name, grantee_tenant_id, grantee_name, service_account, created_at FROM grants `

func (s grants) Get(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) (fleet.Grant, error) {
	g, err := only(s.list(ctx, tenant, grantColumns+`WHERE id = $2 AND (tenant_id = $1 OR grantee_tenant_id = $1)`, tenant, id))
	if err != nil {
		return fleet.Grant{}, fmt.Errorf("reading grant %q: %w", id, err)
	}
	return g, nil
}

func (s grants) OfEnvironment(ctx context.Context, grantee fleet.TenantID, env fleet.EnvironmentID) (fleet.Grant, error) {
	g, err := only(s.list(ctx, grantee, grantColumns+`WHERE environment_id = $2 AND grantee_tenant_id = $1`, grantee, env))
	if err != nil {
		return fleet.Grant{}, fmt.Errorf("reading the grant of environment %q: %w", env, err)
	}
	return g, nil
}

func (s grants) Given(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Grant, error) {
	out, err := s.list(ctx, tenant, grantColumns+`WHERE tenant_id = $1 AND (environment_name, grantee_name) > ($2, $3)
		ORDER BY environment_name, grantee_name LIMIT $4`, tenant, page.After, page.AfterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing grants given: %w", err)
	}
	return out, nil
}

func (s grants) To(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Grant, error) {
	out, err := s.list(ctx, tenant, grantColumns+`WHERE grantee_tenant_id = $1 AND (environment_name, owner_name) > ($2, $3)
		ORDER BY environment_name, owner_name LIMIT $4`, tenant, page.After, page.AfterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing grants received: %w", err)
	}
	return out, nil
}

func (s grants) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Grant, error) {
	var out []fleet.Grant
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var g fleet.Grant
		err := row.Scan(&g.ID, &g.TenantID, &g.EnvironmentID, &g.Environment, &g.OwnerName, &g.Grantee, &g.GranteeName, &g.ServiceAccount, timeInto(&g.CreatedAt))
		out = append(out, g)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	limits, err := s.tx.limitsOf(ctx, s.tx.of(tenant), idsOf(out, func(g *fleet.Grant) fleet.GrantID { return g.ID }))
	for i := range out {
		out[i].Limits = limits[out[i].ID]
	}
	return out, err
}

// limitsOf reads the limits of grants that db may read, with one query each for any number of them.
func (t *Tx) limitsOf(ctx context.Context, db bound, ids []fleet.GrantID) (map[fleet.GrantID]fleet.Limits, error) {
	out := make(map[fleet.GrantID]fleet.Limits, len(ids))
	list := idList(ids)
	err := db.each(ctx, func(row Row) error {
		var id fleet.GrantID
		var namespace string
		err := row.Scan(&id, &namespace)
		l := out[id]
		l.Namespaces = append(l.Namespaces, namespace)
		out[id] = l
		return err
	}, `SELECT grant_id, namespace FROM grant_namespaces
		WHERE grant_id IN (SELECT value FROM json_each($1)) ORDER BY grant_id, namespace`, list)
	if err != nil {
		return nil, err
	}
	err = db.each(ctx, func(row Row) error {
		var id fleet.GrantID
		var kind string
		err := row.Scan(&id, &kind)
		l := out[id]
		l.Kinds = append(l.Kinds, kind)
		out[id] = l
		return err
	}, `SELECT grant_id, kind FROM grant_kinds
		WHERE grant_id IN (SELECT value FROM json_each($1)) ORDER BY grant_id, kind`, list)
	return out, err
}
