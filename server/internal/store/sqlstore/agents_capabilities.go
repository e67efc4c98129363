package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s agents) SetCapabilities(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, c fleet.Capabilities) error {
	changed, err := s.setCapabilities(ctx, tenant, id, c)
	if err != nil {
		return fmt.Errorf("recording the capabilities of agent %q: %w", id, err)
	}
	if !changed {
		return nil
	}
	return s.recordAgent(tenant, id)
}

func (s agents) setCapabilities(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, c fleet.Capabilities) (changed bool, err error) {
	if !s.tx.writable {
		return false, store.ErrReadOnly
	}
	db := s.tx.of(tenant)
	var had string
	err = db.get(ctx, []any{&had}, `SELECT COALESCE(capabilities, '') FROM agents WHERE tenant_id = $1 AND id = $2 /* FOR NO KEY UPDATE */`, tenant, id)
	hash := c.Hash()
	if err != nil || had == hash {
		return false, err
	}
	if hash != "" {
		_, err = db.exec(ctx, `INSERT INTO agent_capabilities (tenant_id, hash, kube_version, api_versions)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, tenant, hash, c.KubeVersion, textList(c.APIVersions))
		if err != nil {
			return false, err
		}
	}
	if _, err = db.exec(ctx, `UPDATE agents SET capabilities = $3 WHERE tenant_id = $1 AND id = $2`, tenant, id, nullable(hash)); err != nil {
		return false, err
	}
	return true, s.dropCapabilities(ctx, tenant, had)
}

// dropCapabilities deletes capabilities that no agent has any more. If another agent reports the same
// concurrently, the reference fails the transaction, and its agent connects again.
func (s agents) dropCapabilities(ctx context.Context, tenant fleet.TenantID, hash string) error {
	if hash == "" {
		return nil
	}
	_, err := s.tx.of(tenant).exec(ctx, `DELETE FROM agent_capabilities WHERE tenant_id = $1 AND hash = $2
		AND NOT EXISTS (SELECT 1 FROM agents WHERE tenant_id = $1 AND capabilities = $2)`, tenant, hash)
	return err
}

func (s agents) Capabilities(ctx context.Context, tenant fleet.TenantID, hash string) (fleet.Capabilities, error) {
	var c fleet.Capabilities
	err := s.tx.of(tenant).get(ctx, []any{&c.KubeVersion, listInto(&c.APIVersions)}, `SELECT kube_version, api_versions FROM agent_capabilities
		WHERE tenant_id = $1 AND hash = $2`, tenant, hash)
	if err != nil {
		return fleet.Capabilities{}, fmt.Errorf("reading capabilities %q: %w", hash, err)
	}
	return c, nil
}
