package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type deployments struct{ *tx }

const deploymentColumns = `SELECT d.id, d.tenant_id, d.name, d.repository_id, r.url, d.path, d.revision,
		d.environment_id, e.name, d.namespace, d.prune, d.adopt, d.allow_empty, d.created_at, d.deleted_at,
		d.rendered_commit, d.rendered_key, COALESCE(d.rendered_digest, ''), d.rendered_at, d.source_error, d.source_at
	FROM deployments d
	JOIN repositories r ON r.tenant_id = d.tenant_id AND r.id = d.repository_id
	JOIN environments e ON e.tenant_id = d.tenant_id AND e.id = d.environment_id `

func (s deployments) Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.Deployment, error) {
	d, err := only(s.list(ctx, tenant, deploymentColumns+`WHERE d.tenant_id = $1 AND d.id = $2`, tenant, id))
	if err != nil {
		return fleet.Deployment{}, fmt.Errorf("reading deployment %q: %w", id, err)
	}
	return d, nil
}

func (s deployments) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Deployment, error) {
	d, err := only(s.list(ctx, tenant, deploymentColumns+`WHERE d.tenant_id = $1 AND d.name = $2 AND d.deleted_at IS NULL`,
		tenant, name))
	if err != nil {
		return fleet.Deployment{}, fmt.Errorf("reading deployment %q: %w", name, err)
	}
	return d, nil
}

// List compares (name, id) as a pair: several deployments may have one name, all but one of them
// on their way out. Without an id to go on from, all of the name After are passed over.
func (s deployments) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.Deployment, error) {
	afterID := page.AfterID
	if afterID == "" && page.After != "" {
		afterID = "~" // sorts behind every id
	}
	out, err := s.list(ctx, tenant, deploymentColumns+`WHERE d.tenant_id = $1 AND (d.name, d.id) > ($2, $3)
		ORDER BY d.name, d.id LIMIT $4`, tenant, page.After, afterID, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	return out, nil
}

func (s deployments) OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.Deployment, error) {
	out, err := s.list(ctx, tenant, deploymentColumns+`WHERE d.tenant_id = $1 AND d.repository_id = $2
		AND d.deleted_at IS NULL ORDER BY d.name`, tenant, repo)
	if err != nil {
		return nil, fmt.Errorf("listing deployments of repository %q: %w", repo, err)
	}
	return out, nil
}

func (s deployments) OfEnvironment(ctx context.Context, tenant fleet.TenantID, env fleet.EnvironmentID) ([]fleet.Deployment, error) {
	out, err := s.list(ctx, tenant, deploymentColumns+`WHERE d.tenant_id = $1 AND d.environment_id = $2
		AND d.deleted_at IS NULL ORDER BY d.name`, tenant, env)
	if err != nil {
		return nil, fmt.Errorf("listing deployments of environment %q: %w", env, err)
	}
	return out, nil
}

// list reads deployments of one tenant and then, in one query, their globs.
func (s deployments) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Deployment, error) {
	var out []fleet.Deployment
	at := map[fleet.DeploymentID]int{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		d, err := scanDeployment(rows)
		at[d.ID] = len(out)
		out = append(out, d)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	err = s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.DeploymentID
		var glob string
		err := rows.Scan(&id, &glob)
		d := &out[at[id]]
		d.Source.Globs = append(d.Source.Globs, glob)
		return err
	}, `SELECT deployment_id, glob FROM deployment_globs
		WHERE tenant_id = $1 AND deployment_id IN (SELECT value FROM json_each($2)) ORDER BY deployment_id, position`,
		tenant, idList(idsOf(out, func(d *fleet.Deployment) fleet.DeploymentID { return d.ID })))
	return out, err
}

func scanDeployment(rows *sql.Rows) (fleet.Deployment, error) {
	var d fleet.Deployment
	err := rows.Scan(&d.ID, &d.TenantID, &d.Name, &d.RepositoryID, &d.Source.RepoURL, &d.Source.Path, &d.Source.Revision,
		&d.EnvironmentID, &d.Environment, &d.Namespace, &d.Policy.Prune, &d.Policy.Adopt, &d.Policy.AllowEmpty,
		timeInto(&d.CreatedAt), timeInto(&d.DeletedAt), &d.Rendered.Commit, &d.Rendered.Key, &d.Rendered.Digest,
		timeInto(&d.Rendered.At), &d.SourceError, timeInto(&d.SourceAt))
	return d, err
}
