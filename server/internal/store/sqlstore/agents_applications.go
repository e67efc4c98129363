package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s agents) SetApplications(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, l fleet.ForeignApplications) error {
	if err := s.setApplications(ctx, tenant, id, l); err != nil {
		return fmt.Errorf("recording the Applications of agent %q: %w", id, err)
	}
	return nil
}

func (s agents) setApplications(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, l fleet.ForeignApplications) error {
	if !s.tx.writable {
		return store.ErrReadOnly
	}
	had, err := s.Applications(ctx, tenant, id)
	if err != nil {
		return err
	}
	db := s.tx.of(tenant)
	if had.Total != l.Total {
		if _, err := db.exec(ctx, `UPDATE agents SET applications = $3 WHERE tenant_id = $1 AND id = $2`, tenant, id, l.Total); err != nil {
			return err
		}
	}
	known := map[string]fleet.ForeignApplication{}
	for _, a := range had.Items {
		known[a.Name] = a
	}
	for _, a := range l.Items {
		if was, ok := known[a.Name]; ok && was == a {
			delete(known, a.Name)
			continue
		}
		delete(known, a.Name)
		_, err := db.exec(ctx, `INSERT INTO agent_applications (tenant_id, agent_id, name, project, repo_url, path, revision, cluster, namespace, sync, health)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (tenant_id, agent_id, name) DO UPDATE SET
			project = excluded.project, repo_url = excluded.repo_url, path = excluded.path, revision = excluded.revision,
			cluster = excluded.cluster, namespace = excluded.namespace, sync = excluded.sync, health = excluded.health`,
			tenant, id, a.Name, a.Project, a.RepoURL, a.Path, a.Revision, a.Cluster, a.Namespace, a.Sync, a.Health)
		if err != nil {
			return err
		}
	}
	for name := range known {
		if _, err := db.exec(ctx, `DELETE FROM agent_applications WHERE tenant_id = $1 AND agent_id = $2 AND name = $3`, tenant, id, name); err != nil {
			return err
		}
	}
	return nil
}

func (s agents) Applications(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.ForeignApplications, error) {
	var out fleet.ForeignApplications
	db := s.tx.of(tenant)
	err := db.get(ctx, []any{&out.Total}, `SELECT applications FROM agents WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil {
		err = db.each(ctx, func(row Row) error {
			var a fleet.ForeignApplication
			err := row.Scan(&a.Name, &a.Project, &a.RepoURL, &a.Path, &a.Revision, &a.Cluster, &a.Namespace, &a.Sync, &a.Health)
			out.Items = append(out.Items, a)
			return err
		}, `SELECT name, project, repo_url, path, revision, cluster, namespace, sync, health FROM agent_applications
			WHERE tenant_id = $1 AND agent_id = $2 ORDER BY name`, tenant, id)
	}
	if err != nil {
		return fleet.ForeignApplications{}, fmt.Errorf("reading the Applications of agent %q: %w", id, err)
	}
	return out, nil
}
