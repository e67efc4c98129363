package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s deployments) Create(ctx context.Context, d fleet.Deployment) error {
	if err := s.create(ctx, d); err != nil {
		return fmt.Errorf("creating deployment %q: %w", d.Name, err)
	}
	return s.recordDeployment(ctx, d.TenantID, d.ID)
}

func (s deployments) create(ctx context.Context, d fleet.Deployment) error {
	err := s.insert(ctx, `INSERT INTO deployments (tenant_id, id, name, repository_id, path, revision, environment_id,
			namespace, prune, adopt, allow_empty, created_at, deleted_at,
			rendered_commit, rendered_key, rendered_digest, rendered_at, source_error, source_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT DO NOTHING`,
		d.TenantID, d.ID, d.Name, d.RepositoryID, d.Source.Path, d.Source.Revision, d.EnvironmentID,
		d.Namespace, d.Policy.Prune, d.Policy.Adopt, d.Policy.AllowEmpty, micros(d.CreatedAt), micros(d.DeletedAt),
		d.Rendered.Commit, d.Rendered.Key, nullable(d.Rendered.Digest), micros(d.Rendered.At), d.SourceError, micros(d.SourceAt))
	if err != nil {
		return err
	}
	for i, glob := range d.Source.Globs {
		_, err := s.exec(ctx, `INSERT INTO deployment_globs (tenant_id, deployment_id, position, glob)
			VALUES ($1, $2, $3, $4)`, d.TenantID, d.ID, i, glob)
		if err != nil {
			return fmt.Errorf("glob %q: %w", glob, err)
		}
	}
	return nil
}

func (s deployments) recordDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	return s.record(ctx, store.Change{TenantID: tenant, Kind: store.ChangeDeployment, ID: string(id), DeploymentID: id})
}

func (s deployments) SetRendered(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Rendered) error {
	err := s.change(ctx, tenant, id, `UPDATE deployments SET rendered_commit = $3, rendered_key = $4, rendered_digest = $5,
			rendered_at = $6, source_error = '', source_at = $6
		WHERE tenant_id = $1 AND id = $2 AND (rendered_commit <> $3 OR rendered_key <> $4
			OR rendered_digest IS DISTINCT FROM $5 OR source_error <> '')`,
		r.Commit, r.Key, nullable(r.Digest), micros(r.At))
	if err != nil {
		return fmt.Errorf("recording the render of deployment %q: %w", id, err)
	}
	return nil
}

func (s deployments) SetSourceError(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, message string, at time.Time) error {
	err := s.change(ctx, tenant, id, `UPDATE deployments SET source_error = $3, source_at = $4
		WHERE tenant_id = $1 AND id = $2 AND source_error <> $3`, message, micros(at))
	if err != nil {
		return fmt.Errorf("recording the source error of deployment %q: %w", id, err)
	}
	return nil
}

func (s deployments) MarkDeleted(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, at time.Time) error {
	err := s.change(ctx, tenant, id, `UPDATE deployments SET deleted_at = $3
		WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL`, micros(at))
	if err != nil {
		return fmt.Errorf("marking deployment %q as deleted: %w", id, err)
	}
	return nil
}

// change runs an update that touches the row only if it makes a difference, and records it then.
func (s deployments) change(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, update string, args ...any) error {
	n, err := s.exec(ctx, update, append([]any{tenant, id}, args...)...)
	if err != nil {
		return err
	}
	if n > 0 {
		return s.recordDeployment(ctx, tenant, id)
	}
	return s.exists(ctx, tenant, id)
}

func (s deployments) exists(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	var one int
	return s.get(ctx, []any{&one}, `SELECT 1 FROM deployments WHERE tenant_id = $1 AND id = $2`, tenant, id)
}

func (s deployments) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	if err := s.remove(ctx, tenant, id); err != nil {
		return fmt.Errorf("removing deployment %q: %w", id, err)
	}
	return s.recordDeployment(ctx, tenant, id)
}

// remove asks for targets itself: the foreign key would stop the statement too, but an error of
// the database costs the whole transaction.
func (s deployments) remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	n, err := s.exec(ctx, `DELETE FROM deployments WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (
		SELECT 1 FROM targets WHERE tenant_id = $1 AND deployment_id = $2)`, tenant, id)
	if err != nil || n > 0 {
		return err
	}
	if err := s.exists(ctx, tenant, id); err != nil {
		return err
	}
	return fmt.Errorf("it still has targets: %w", store.ErrExists)
}
