package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type gitLabProjects struct{ tx *Tx }

func (s gitLabProjects) Put(ctx context.Context, p fleet.GitLabProject) error {
	n, err := s.tx.of(p.TenantID).exec(ctx, `INSERT INTO gitlab_projects (tenant_id, project, url) VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id, project) DO UPDATE SET url = excluded.url WHERE gitlab_projects.url <> excluded.url`,
		p.TenantID, p.Project, p.URL)
	if err != nil {
		return fmt.Errorf("mapping project %q: %w", p.Project, err)
	}
	if n == 0 {
		return nil
	}
	return s.record(p.TenantID)
}

func (s gitLabProjects) record(tenant fleet.TenantID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeAgentConfig})
}

func (s gitLabProjects) Delete(ctx context.Context, tenant fleet.TenantID, project string) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM gitlab_projects WHERE tenant_id = $1 AND project = $2`, tenant, project)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting project %q: %w", project, err)
	}
	return s.record(tenant)
}

func (s gitLabProjects) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.GitLabProject, error) {
	var out []fleet.GitLabProject
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var p fleet.GitLabProject
		err := row.Scan(&p.TenantID, &p.Project, &p.URL)
		out = append(out, p)
		return err
	}, `SELECT tenant_id, project, url FROM gitlab_projects WHERE tenant_id = $1 AND project > $2 ORDER BY project LIMIT $3`,
		tenant, page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing GitLab projects: %w", err)
	}
	return out, nil
}
