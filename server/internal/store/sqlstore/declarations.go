package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type declarations struct{ tx *Tx }

const declarationColumns = `SELECT tenant_id, deployment_id, agent_name, name, repo_url, file, prune_on_remove, released_at FROM declarations `

func (s declarations) Put(ctx context.Context, d fleet.Declaration) error {
	n, err := s.tx.of(d.TenantID).exec(ctx, `INSERT INTO declarations
			(tenant_id, deployment_id, agent_name, name, repo_url, file, prune_on_remove, released_at)
		SELECT tenant_id, id, $3, $4, $5, $6, $7, $8 FROM deployments WHERE tenant_id = $1 AND id = $2
		ON CONFLICT (tenant_id, deployment_id) DO UPDATE SET agent_name = excluded.agent_name, name = excluded.name,
			repo_url = excluded.repo_url, file = excluded.file, prune_on_remove = excluded.prune_on_remove, released_at = excluded.released_at`,
		d.TenantID, d.DeploymentID, d.AgentName, d.Name, d.RepoURL, d.File, d.Prune, micros(d.ReleasedAt))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("recording the declaration of deployment %q: %w", d.DeploymentID, err)
	}
	return s.record(d.TenantID, d.DeploymentID)
}

func (s declarations) record(tenant fleet.TenantID, id fleet.DeploymentID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeDeployment, ID: string(id), DeploymentID: id})
}

func (s declarations) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM declarations WHERE tenant_id = $1 AND deployment_id = $2`, tenant, id)
	if err != nil {
		return fmt.Errorf("deleting the declaration of deployment %q: %w", id, err)
	}
	if n == 0 {
		return nil
	}
	return s.record(tenant, id)
}

func (s declarations) OfAgent(ctx context.Context, tenant fleet.TenantID, agent string) ([]fleet.Declaration, error) {
	out, err := s.list(ctx, tenant, declarationColumns+`WHERE tenant_id = $1 AND agent_name = $2 ORDER BY name, deployment_id`, tenant, agent)
	if err != nil {
		return nil, fmt.Errorf("listing the declarations of agent %q: %w", agent, err)
	}
	return out, nil
}

func (s declarations) Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.Declaration, error) {
	out, err := s.list(ctx, tenant, declarationColumns+`WHERE tenant_id = $1 AND deployment_id IN (SELECT value FROM json_each($2))
		ORDER BY deployment_id`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the declarations of %d deployments: %w", len(ids), err)
	}
	return out, nil
}

func (s declarations) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Declaration, error) {
	var out []fleet.Declaration
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var d fleet.Declaration
		err := row.Scan(&d.TenantID, &d.DeploymentID, &d.AgentName, &d.Name, &d.RepoURL, &d.File, &d.Prune, timeInto(&d.ReleasedAt))
		out = append(out, d)
		return err
	}, query, args...)
	return out, err
}
