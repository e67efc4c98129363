package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type repositories struct{ *tx }

func (s repositories) Create(ctx context.Context, r fleet.Repository) error {
	err := s.insert(ctx, `INSERT INTO repositories (tenant_id, id, url, created_at, checked_at, error)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		r.TenantID, r.ID, r.URL, micros(r.CreatedAt), micros(r.CheckedAt), r.Error)
	if err != nil {
		return fmt.Errorf("creating repository %q: %w", r.ID, err)
	}
	return s.recordRepository(ctx, r.TenantID, r.ID)
}

func (s repositories) recordRepository(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error {
	return s.record(ctx, store.Change{TenantID: tenant, Kind: store.ChangeRepository, ID: string(id)})
}

const repositoryColumns = `SELECT r.id, r.tenant_id, r.url, r.created_at, r.checked_at, r.error FROM repositories r `

func (s repositories) Get(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) (fleet.Repository, error) {
	r, err := only(s.list(ctx, repositoryColumns+`WHERE r.tenant_id = $1 AND r.id = $2`, tenant, id))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading repository %q: %w", id, err)
	}
	return r, nil
}

func (s repositories) GetAllTenants(ctx context.Context, id fleet.RepositoryID) (fleet.Repository, error) {
	r, err := only(s.list(ctx, repositoryColumns+`WHERE r.id = $1`, id))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading repository %q: %w", id, err)
	}
	return r, nil
}

// ByURL leaves the URL out of its error: it may hold a credential.
func (s repositories) ByURL(ctx context.Context, tenant fleet.TenantID, url string) (fleet.Repository, error) {
	r, err := only(s.list(ctx, repositoryColumns+`WHERE r.tenant_id = $1 AND r.url = $2`, tenant, url))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading a repository by its URL: %w", err)
	}
	return r, nil
}

func (s repositories) List(ctx context.Context, tenant fleet.TenantID) ([]fleet.Repository, error) {
	out, err := s.list(ctx, repositoryColumns+`WHERE r.tenant_id = $1 ORDER BY r.url`, tenant)
	if err != nil {
		return nil, fmt.Errorf("listing repositories: %w", err)
	}
	return out, nil
}

func (s repositories) ListAllTenants(ctx context.Context) ([]fleet.Repository, error) {
	out, err := s.list(ctx, repositoryColumns+`WHERE EXISTS (SELECT 1 FROM deployments d
			WHERE d.tenant_id = r.tenant_id AND d.repository_id = r.id AND d.deleted_at IS NULL)
		ORDER BY r.tenant_id, r.url`)
	if err != nil {
		return nil, fmt.Errorf("listing the repositories in use: %w", err)
	}
	return out, nil
}

func (s repositories) list(ctx context.Context, query string, args ...any) ([]fleet.Repository, error) {
	var out []fleet.Repository
	err := s.each(ctx, func(rows *sql.Rows) error {
		var r fleet.Repository
		err := rows.Scan(&r.ID, &r.TenantID, &r.URL, timeInto(&r.CreatedAt), timeInto(&r.CheckedAt), &r.Error)
		out = append(out, r)
		return err
	}, query, args...)
	return out, err
}

func (s repositories) SetChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string) error {
	changed, err := s.setChecked(ctx, tenant, id, at, message)
	if err != nil {
		return fmt.Errorf("recording a look at repository %q: %w", id, err)
	}
	if !changed {
		return nil
	}
	return s.recordRepository(ctx, tenant, id)
}

// setChecked reports whether the message is another one than before.
func (s repositories) setChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string) (bool, error) {
	if !s.writable {
		return false, store.ErrReadOnly
	}
	n, err := s.exec(ctx, `UPDATE repositories SET checked_at = $3, error = $4
		WHERE tenant_id = $1 AND id = $2 AND error <> $4`, tenant, id, micros(at), message)
	if err != nil || n > 0 {
		return n > 0, err
	}
	n, err = s.exec(ctx, `UPDATE repositories SET checked_at = $3 WHERE tenant_id = $1 AND id = $2`, tenant, id, micros(at))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return false, err
}
