package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s repositories) Create(ctx context.Context, r fleet.Repository) error {
	err := s.tx.of(r.TenantID).insert(ctx, `INSERT INTO repositories (tenant_id, id, url, credential_id, submodules, signers, spec, created_at, checked_at, error, error_reason, state_since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`,
		r.TenantID, r.ID, r.URL, nullable(string(r.CredentialID)), r.Submodules, r.Signers, cmp.Or(r.SpecRevision, 1), micros(r.CreatedAt), micros(r.CheckedAt), r.Error, r.ErrorReason, micros(r.StateSince))
	if err == nil {
		err = repositoryWords.add(ctx, s.tx, r.TenantID, string(r.ID), suffixes(r.URL))
	}
	if err != nil {
		return fmt.Errorf("creating repository %q: %w", r.ID, err)
	}
	return s.recordRepository(r.TenantID, r.ID)
}

func (s repositories) recordRepository(tenant fleet.TenantID, id fleet.RepositoryID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeRepository, ID: string(id)})
}

func (s repositories) SetCredential(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, credential fleet.CredentialID) error {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE repositories SET credential_id = $3, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`,
		tenant, id, nullable(string(credential)))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("setting the credential of repository %q: %w", id, err)
	}
	return s.recordRepository(tenant, id)
}

func (s repositories) SetPolicy(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, submodules bool, signers string) error {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE repositories SET submodules = $3, signers = $4, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`,
		tenant, id, submodules, signers)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("setting the policy of repository %q: %w", id, err)
	}
	return s.recordRepository(tenant, id)
}

func (s repositories) SetChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string, reason fleet.Reason) error {
	changed, err := s.setChecked(ctx, tenant, id, at, message, reason)
	if err != nil {
		return fmt.Errorf("recording a check of repository %q: %w", id, err)
	}
	if !changed {
		return nil
	}
	return s.recordRepository(tenant, id)
}

// setChecked reports whether the message is another one than before.
func (s repositories) setChecked(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, at time.Time, message string, reason fleet.Reason) (bool, error) {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE repositories SET checked_at = $3, error = $4, error_reason = $5,
			state_since = CASE WHEN (error <> '') = ($4 <> '') AND state_since IS NOT NULL THEN state_since ELSE $3 END
		WHERE tenant_id = $1 AND id = $2 AND error <> $4`, tenant, id, micros(at), message, reason)
	if err != nil || n > 0 {
		return n > 0, err
	}
	n, err = s.tx.of(tenant).exec(ctx, `UPDATE repositories SET checked_at = $3, state_since = COALESCE(state_since, $3) WHERE tenant_id = $1 AND id = $2`, tenant, id, micros(at))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return false, err
}

func (s repositories) Delete(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error {
	if err := s.delete(ctx, tenant, id); err != nil {
		return fmt.Errorf("deleting repository %q: %w", id, err)
	}
	return s.recordRepository(tenant, id)
}

// delete checks for references itself: the foreign key would also fail, but an error of the database ends the
// whole transaction.
func (s repositories) delete(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error {
	db := s.tx.of(tenant)
	var url string
	err := db.returning(ctx, []any{&url}, `DELETE FROM repositories WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (
		SELECT 1 FROM deployments WHERE tenant_id = $1 AND repository_id = $2) AND NOT EXISTS (
		SELECT 1 FROM pending_specs WHERE tenant_id = $1 AND repository_id = $2) AND NOT EXISTS (
		SELECT 1 FROM agent_configs WHERE tenant_id = $1 AND repository_id = $2) RETURNING url`, tenant, id)
	if err == nil {
		return repositoryWords.drop(ctx, s.tx, tenant, string(id), suffixes(url))
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, err := s.Get(ctx, tenant, id); err != nil {
		return err
	}
	return fmt.Errorf("deployments or agent configurations use it: %w", store.ErrExists)
}
