package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type repositories struct{ tx *Tx }

const repositoryColumns = `SELECT r.id, r.tenant_id, r.url, COALESCE(r.credential_id, ''), r.submodules, r.signers, r.spec, r.created_at, r.checked_at, r.error, r.error_reason, r.state_since
	FROM repositories r `

func (s repositories) Get(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) (fleet.Repository, error) {
	r, err := only(s.list(ctx, s.tx.of(tenant), repositoryColumns+`WHERE r.tenant_id = $1 AND r.id = $2`, tenant, id))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading repository %q: %w", id, err)
	}
	return r, nil
}

func (s repositories) GetAllTenants(ctx context.Context, id fleet.RepositoryID) (fleet.Repository, error) {
	r, err := only(s.list(ctx, s.tx.everywhere().aboutOwners(`SELECT tenant_id FROM repositories WHERE id = $1`, id),
		repositoryColumns+`WHERE r.id = $1`, id))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading repository %q: %w", id, err)
	}
	return r, nil
}

// ByURL omits the URL from its error, because it may contain a credential.
func (s repositories) ByURL(ctx context.Context, tenant fleet.TenantID, url string) (fleet.Repository, error) {
	r, err := only(s.list(ctx, s.tx.of(tenant), repositoryColumns+`WHERE r.tenant_id = $1 AND r.url = $2`, tenant, url))
	if err != nil {
		return fleet.Repository{}, fmt.Errorf("reading a repository by its URL: %w", err)
	}
	return r, nil
}

// repositoryReason is Repository.State.
const repositoryReason = `CASE WHEN r.error <> '' AND r.error_reason <> '' THEN r.error_reason
	WHEN r.error <> '' THEN 'RepositoryUnreadable'
	WHEN r.checked_at IS NULL THEN 'NotChecked'
	ELSE 'RepositoryReadable' END`

func (s repositories) List(ctx context.Context, tenant fleet.TenantID, f store.RepositoryFilter) ([]fleet.Repository, error) {
	var a args
	query := repositoryColumns + `WHERE r.tenant_id = ` + a.add(tenant) + ` AND r.url > ` + a.add(f.After)
	if f.Reason != "" {
		query += ` AND ` + repositoryReason + ` = ` + a.add(f.Reason)
	}
	if f.Unreadable {
		query += ` AND r.error <> ''`
	}
	out, err := s.list(ctx, s.tx.of(tenant), query+` ORDER BY r.url LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing repositories: %w", err)
	}
	return out, nil
}

func (s repositories) Problems(ctx context.Context, tenant fleet.TenantID, ids []fleet.RepositoryID) (map[fleet.RepositoryID]string, error) {
	out := map[fleet.RepositoryID]string{}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.RepositoryID
		var problem string
		err := row.Scan(&id, &problem)
		out[id] = problem
		return err
	}, `SELECT id, error FROM repositories WHERE tenant_id = $1 AND id IN (SELECT value FROM json_each($2)) AND error <> ''`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the problems of %d repositories: %w", len(ids), err)
	}
	return out, nil
}

func (s repositories) OfCredential(ctx context.Context, tenant fleet.TenantID, id fleet.CredentialID) ([]fleet.Repository, error) {
	out, err := s.list(ctx, s.tx.of(tenant), repositoryColumns+`WHERE r.tenant_id = $1 AND r.credential_id = $2 ORDER BY r.url`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing the repositories of credential %q: %w", id, err)
	}
	return out, nil
}

func (s repositories) ListAllTenants(ctx context.Context) ([]fleet.Repository, error) {
	out, err := s.list(ctx, s.tx.everywhere(), repositoryColumns+`WHERE EXISTS (SELECT 1 FROM deployments d
			WHERE d.tenant_id = r.tenant_id AND d.repository_id = r.id AND d.deleted_at IS NULL)
			OR EXISTS (SELECT 1 FROM pending_specs p WHERE p.tenant_id = r.tenant_id AND p.repository_id = r.id)
			OR EXISTS (SELECT 1 FROM agent_configs c WHERE c.tenant_id = r.tenant_id AND c.repository_id = r.id)
		ORDER BY r.tenant_id, r.url`)
	if err != nil {
		return nil, fmt.Errorf("listing the repositories in use: %w", err)
	}
	return out, nil
}

func (s repositories) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Repository, error) {
	var out []fleet.Repository
	err := db.each(ctx, func(row Row) error {
		var r fleet.Repository
		err := row.Scan(&r.ID, &r.TenantID, &r.URL, &r.CredentialID, &r.Submodules, &r.Signers, &r.SpecRevision, timeInto(&r.CreatedAt), timeInto(&r.CheckedAt), &r.Error, &r.ErrorReason, timeInto(&r.StateSince))
		out = append(out, r)
		return err
	}, query, args...)
	return out, err
}

func (s repositories) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM repositories WHERE tenant_id = $1`, tenant); err != nil {
		return 0, fmt.Errorf("counting repositories: %w", err)
	}
	return n, nil
}
