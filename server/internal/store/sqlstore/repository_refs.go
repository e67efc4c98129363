package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s repositories) Evaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string) (store.EvaluatedRef, error) {
	out := store.EvaluatedRef{Revision: revision}
	var except []string
	err := s.tx.of(tenant).get(ctx, []any{&out.Commit, listInto(&except)}, `SELECT commit_hash, except_deployments FROM repository_refs
		WHERE tenant_id = $1 AND repository_id = $2 AND revision = $3`, tenant, id, revision)
	if errors.Is(err, store.ErrNotFound) {
		return store.EvaluatedRef{}, nil
	}
	if err != nil {
		return store.EvaluatedRef{}, fmt.Errorf("reading the evaluated commit of repository %q: %w", id, err)
	}
	for _, d := range except {
		out.Except = append(out.Except, fleet.DeploymentID(d))
	}
	return out, nil
}

func (s repositories) SetEvaluated(
	ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, refs []store.EvaluatedRef, inUse []string,
) error {
	if err := s.setEvaluated(ctx, tenant, id, refs, inUse); err != nil {
		return fmt.Errorf("recording the evaluated commit of repository %q: %w", id, err)
	}
	return s.recordRepository(tenant, id)
}

func (s repositories) setEvaluated(
	ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, refs []store.EvaluatedRef, inUse []string,
) error {
	db := s.tx.of(tenant)
	if err := s.mustExist(ctx, tenant, id); err != nil {
		return err
	}
	for _, r := range refs {
		if err := s.putEvaluated(ctx, tenant, id, r); err != nil {
			return err
		}
	}
	_, err := db.exec(ctx, `DELETE FROM repository_refs WHERE tenant_id = $1 AND repository_id = $2
		AND revision NOT IN (SELECT value FROM json_each($3))`, tenant, id, idList(inUse))
	return err
}

func (s repositories) mustExist(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID) error {
	var there int
	err := s.tx.of(tenant).get(ctx, []any{&there}, `SELECT COUNT(*) FROM repositories WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil && there == 0 {
		err = store.ErrNotFound
	}
	return err
}

func (s repositories) putEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, r store.EvaluatedRef) error {
	except := make([]string, len(r.Except))
	for i, d := range r.Except {
		except[i] = string(d)
	}
	_, err := s.tx.of(tenant).exec(ctx, `INSERT INTO repository_refs (tenant_id, repository_id, revision, commit_hash, except_deployments)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant_id, repository_id, revision)
		DO UPDATE SET commit_hash = excluded.commit_hash, except_deployments = excluded.except_deployments`,
		tenant, id, r.Revision, r.Commit, textList(except))
	return err
}

func (s repositories) ExceptEvaluated(ctx context.Context, tenant fleet.TenantID, id fleet.RepositoryID, revision string, ids []fleet.DeploymentID) error {
	if err := s.mustExist(ctx, tenant, id); err != nil {
		return fmt.Errorf("recording that deployments of repository %q were not evaluated: %w", id, err)
	}
	ref, err := s.Evaluated(ctx, tenant, id, revision)
	if err != nil {
		return err
	}
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(ref.Except, ids))))
	if slices.Equal(all, ref.Except) {
		return nil
	}
	ref.Revision, ref.Except = revision, all
	if err := s.putEvaluated(ctx, tenant, id, ref); err != nil {
		return fmt.Errorf("recording that deployments of repository %q were not evaluated: %w", id, err)
	}
	return s.recordRepository(tenant, id)
}
