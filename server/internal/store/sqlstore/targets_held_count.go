package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CountHeld reads only the index of held objects. Objects of a deleted agent, of a detached target, or of a
// tombstone that releases protected kinds are not counted.
func (s targets) CountHeld(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]store.HeldCount, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var out []store.HeldCount
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var n store.HeldCount
		err := row.Scan(&n.Deployment, &n.Target, &n.Count)
		out = append(out, n)
		return err
	}, `SELECT t.deployment_id, t.id, COUNT(*)
		FROM targets t JOIN target_objects o ON o.tenant_id = t.tenant_id AND o.target_id = t.id AND o.sync = 'Held'
		WHERE t.tenant_id = $1 AND t.deployment_id IN (SELECT value FROM json_each($2))
			AND t.agent_id IS NOT NULL AND t.detached_at IS NULL AND (NOT t.desired_tombstone OR t.desired_hold_protected)
		GROUP BY t.deployment_id, t.id ORDER BY t.deployment_id, t.id`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("counting held deletions of %d deployments: %w", len(ids), err)
	}
	return out, nil
}
