package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type revisions struct{ tx *Tx }

func (s revisions) Append(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Revision, keep int) (int64, error) {
	seq, err := s.append(ctx, tenant, id, r)
	if err == nil {
		err = s.trim(ctx, tenant, id, keep)
	}
	if err != nil {
		return 0, fmt.Errorf("storing revision %q of deployment %q: %w", r.Commit, id, err)
	}
	return seq, nil
}

func (s revisions) append(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Revision) (int64, error) {
	db := s.tx.of(tenant)
	newest, err := only(s.list(ctx, tenant, id, `WHERE tenant_id = $1 AND deployment_id = $2 ORDER BY seq DESC LIMIT 1`))
	switch {
	case err == nil && maps.Equal(newest.Bundles, r.Bundles):
		_, err := db.exec(ctx, `UPDATE revisions SET commit_hash = $4, rendered_at = $5
			WHERE tenant_id = $1 AND deployment_id = $2 AND seq = $3`, tenant, id, newest.Seq, r.Commit, micros(r.RenderedAt))
		return newest.Seq, err
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return 0, err
	}
	var seq int64
	err = db.returning(ctx, []any{&seq}, `UPDATE deployments SET last_revision = last_revision + 1
		WHERE tenant_id = $1 AND id = $2 RETURNING last_revision`, tenant, id)
	if err != nil {
		return 0, err
	}
	_, err = db.exec(ctx, `INSERT INTO revisions (tenant_id, deployment_id, seq, commit_hash, rendered_at) VALUES ($1, $2, $3, $4, $5)`,
		tenant, id, seq, r.Commit, micros(r.RenderedAt))
	if err != nil {
		return 0, err
	}
	for variant, digest := range r.Bundles {
		_, err := db.exec(ctx, `INSERT INTO revision_bundles (tenant_id, deployment_id, seq, variant, digest) VALUES ($1, $2, $3, $4, $5)`,
			tenant, id, seq, variant, digest)
		if err != nil {
			return 0, fmt.Errorf("bundle %q: %w", digest, err)
		}
	}
	return seq, nil
}

// trim always keeps the newest, the pinned one, and those that unfinished upgrades of Argo CD return to.
func (s revisions) trim(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, keep int) error {
	_, err := s.tx.of(tenant).exec(ctx, `DELETE FROM revisions WHERE tenant_id = $1 AND deployment_id = $2
		AND seq <= (SELECT r.seq FROM revisions r WHERE r.tenant_id = $1 AND r.deployment_id = $2
			ORDER BY r.seq DESC LIMIT 1 OFFSET $3)
		AND seq <> (SELECT d.pin_revision FROM deployments d WHERE d.tenant_id = $1 AND d.id = $2)
		AND seq NOT IN (SELECT i.before_revision FROM engine_upgrade_instances i JOIN engine_upgrades u ON u.tenant_id = i.tenant_id AND u.id = i.upgrade_id
			WHERE i.tenant_id = $1 AND i.deployment_id = $2 AND u.phase = 'Running')`, tenant, id, max(keep, 1))
	return err
}

func (s revisions) List(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, page store.Page) ([]fleet.Revision, error) {
	before, err := numberAfter(page, math.MaxInt64)
	if err != nil {
		return nil, fmt.Errorf("listing revisions of deployment %q: %w", id, err)
	}
	out, err := s.list(ctx, tenant, id, `WHERE tenant_id = $1 AND deployment_id = $2 AND seq < $3
		ORDER BY seq DESC LIMIT $4`, before, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing revisions of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s revisions) Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, seq int64) (fleet.Revision, error) {
	r, err := only(s.list(ctx, tenant, id, `WHERE tenant_id = $1 AND deployment_id = $2 AND seq = $3`, seq))
	if err != nil {
		return fleet.Revision{}, fmt.Errorf("reading revision %d of deployment %q: %w", seq, id, err)
	}
	return r, nil
}

func (s revisions) list(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, where string, more ...any) ([]fleet.Revision, error) {
	var out []fleet.Revision
	args := append([]any{tenant, id}, more...)
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		r := fleet.Revision{Bundles: map[string]string{}}
		err := row.Scan(&r.Seq, &r.Commit, timeInto(&r.RenderedAt))
		out = append(out, r)
		return err
	}, `SELECT seq, commit_hash, rendered_at FROM revisions `+where, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	at := map[int64]int{}
	for i := range out {
		at[out[i].Seq] = i
	}
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var seq int64
		var variant, digest string
		err := row.Scan(&seq, &variant, &digest)
		if i, ok := at[seq]; ok {
			out[i].Bundles[variant] = digest
		}
		return err
	}, `SELECT seq, variant, digest FROM revision_bundles
		WHERE tenant_id = $1 AND deployment_id = $2 AND seq BETWEEN $3 AND $4`, tenant, id, out[len(out)-1].Seq, out[0].Seq)
	return out, err
}
