package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Held reads few rows of many: an index holds those that are held and no others.
func (s targets) Held(
	ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, after store.HeldObject, limit int,
) ([]store.HeldObject, error) {
	var out []store.HeldObject
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var o store.HeldObject
		err := row.Scan(&o.Agent, &o.Target, &o.Kind, &o.Group, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message)
		out = append(out, o)
		return err
	}, `SELECT t.agent_name, t.id, o.kind, o.api_group, o.namespace, o.name, o.api_version, o.sync, o.health, o.message
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
