package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Held reads few rows of many: an index contains only held objects.
func (s targets) Held(
	ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, after store.HeldObject, limit int,
) ([]store.HeldObject, error) {
	var out []store.HeldObject
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var o store.HeldObject
		err := row.Scan(&o.Agent, &o.Target, &o.Kind, &o.Group, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message, &o.Reason)
		out = append(out, o)
		return err
	}, `SELECT t.agent_name, t.id, o.kind, o.api_group, o.namespace, o.name, o.api_version, o.sync, o.health, o.message, o.reason
		FROM targets t JOIN target_objects o ON o.tenant_id = t.tenant_id AND o.target_id = t.id AND o.sync = 'Held'
		WHERE t.tenant_id = $1 AND t.deployment_id = $2
			AND (t.agent_name, t.id, o.kind, o.api_group, o.namespace, o.name) > ($3, $4, $5, $6, $7, $8)
		ORDER BY t.agent_name, t.id, o.kind, o.api_group, o.namespace, o.name LIMIT $9`,
		tenant, id, after.Agent, after.Target, after.Kind, after.Group, after.Namespace, after.Name, limitOf(limit))
	if err != nil {
		return nil, fmt.Errorf("listing held deletions of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s targets) CountObjects(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]store.KindCount, error) {
	var out []store.KindCount
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var k store.KindCount
		err := row.Scan(&k.Group, &k.Kind, &k.Objects)
		out = append(out, k)
		return err
	}, `SELECT o.api_group, o.kind, COUNT(*) FROM targets t JOIN target_objects o ON o.tenant_id = t.tenant_id AND o.target_id = t.id
		WHERE t.tenant_id = $1 AND t.deployment_id = $2 AND t.agent_id IS NOT NULL AND t.detached_at IS NULL
		GROUP BY o.api_group, o.kind ORDER BY o.api_group, o.kind`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("counting the objects of deployment %q: %w", id, err)
	}
	return out, nil
}

// HeldByDeployment uses the index of held objects, so that a tenant without any costs nothing.
func (s targets) HeldByDeployment(ctx context.Context, tenant fleet.TenantID, limit int) ([]store.HeldDeployment, error) {
	var out []store.HeldDeployment
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var h store.HeldDeployment
		err := row.Scan(&h.Name, &h.Deployment, &h.Objects, &h.Targets)
		out = append(out, h)
		return err
	}, `SELECT t.deployment_name, t.deployment_id, COUNT(*), COUNT(DISTINCT o.target_id) FROM target_objects o
			CROSS JOIN targets t ON (t.tenant_id = o.tenant_id AND t.id = o.target_id)
		WHERE o.tenant_id = $1 AND o.sync = 'Held' AND t.detached_at IS NULL AND (NOT t.desired_tombstone OR t.desired_hold_protected)
		GROUP BY t.deployment_name, t.deployment_id ORDER BY t.deployment_name, t.deployment_id LIMIT $2`, tenant, limitOf(limit))
	if err != nil {
		return nil, fmt.Errorf("counting held deletions: %w", err)
	}
	return out, nil
}
