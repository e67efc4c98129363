package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func (s deployments) SetRendered(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, r fleet.Rendered) error {
	changed, err := s.change(ctx, tenant, id, `UPDATE deployments SET rendered_commit = $3, rendered_key = $4, rendered_digest = $5,
			rendered_at = $6, rendered_reads = $7, rendered_volatile = $8, source_error = '', source_reason = '',
			source_at = CASE WHEN source_error <> '' OR source_at IS NULL THEN $6 ELSE source_at END
		WHERE tenant_id = $1 AND id = $2 AND (rendered_commit <> $3 OR rendered_key <> $4
			OR rendered_digest IS DISTINCT FROM $5 OR rendered_reads <> $7 OR rendered_volatile <> $8 OR source_error <> '')`,
		r.Commit, r.Key, nullable(r.Digest), micros(r.At), textList(r.Reads), r.Volatile)
	if err == nil && changed {
		err = s.setNewest(ctx, tenant, id, "", r.Digest)
	}
	if err != nil {
		return fmt.Errorf("recording the render of deployment %q: %w", id, err)
	}
	return nil
}

// setNewest writes the newest rendered digest of a variant to its targets.
func (s deployments) setNewest(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, variant, digest string) error {
	_, err := s.tx.of(tenant).exec(ctx, `UPDATE targets SET newest_digest = $4
		WHERE tenant_id = $1 AND deployment_id = $2 AND variant = $3 AND newest_digest IS DISTINCT FROM $4`,
		tenant, id, variant, nullable(digest))
	return err
}

func (s deployments) SetSourceError(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, reason fleet.Reason, message string, at time.Time) error {
	_, err := s.change(ctx, tenant, id, `UPDATE deployments SET source_error = $3, source_reason = $5,
			source_at = CASE WHEN (source_error <> '') = ($3 <> '') AND source_at IS NOT NULL THEN source_at ELSE $4 END
		WHERE tenant_id = $1 AND id = $2 AND (source_error <> $3 OR source_reason <> $5)`, message, micros(at), reason)
	if err != nil {
		return fmt.Errorf("recording the source error of deployment %q: %w", id, err)
	}
	return nil
}

func (s deployments) SetDetected(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, kind fleet.SourceKind) error {
	_, err := s.change(ctx, tenant, id, `UPDATE deployments SET detected = $3 WHERE tenant_id = $1 AND id = $2 AND detected <> $3`, kind)
	if err != nil {
		return fmt.Errorf("recording the detected kind of deployment %q: %w", id, err)
	}
	return nil
}

func (s deployments) Variants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Variant, error) {
	out, err := s.VariantsOf(ctx, tenant, []fleet.DeploymentID{id})
	if err != nil {
		return nil, fmt.Errorf("deployment %q: %w", id, err)
	}
	return out[id], nil
}

func (s deployments) VariantsOf(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Variant, error) {
	out := make(map[fleet.DeploymentID][]fleet.Variant, len(ids))
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.DeploymentID
		var v fleet.Variant
		r := &v.Rendered
		err := row.Scan(&id, &v.Name, &r.Commit, &r.Key, &r.Digest, timeInto(&r.At), listInto(&r.Reads), &r.Volatile, &v.Error, &v.Reason)
		out[id] = append(out[id], v)
		return err
	}, `SELECT deployment_id, name, rendered_commit, rendered_key, COALESCE(rendered_digest, ''), rendered_at,
			rendered_reads, rendered_volatile, error, error_reason FROM deployment_variants
		WHERE tenant_id = $1 AND deployment_id IN (SELECT value FROM json_each($2)) ORDER BY deployment_id, name`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("listing variants of %d deployments: %w", len(ids), err)
	}
	return out, nil
}

func (s deployments) PutVariant(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, v fleet.Variant) error {
	if err := s.putVariant(ctx, tenant, id, v); err != nil {
		return fmt.Errorf("recording variant %q of deployment %q: %w", v.Name, id, err)
	}
	return nil
}

// putVariant writes and records nothing if only the time is new.
func (s deployments) putVariant(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, v fleet.Variant) error {
	r := v.Rendered
	n, err := s.tx.of(tenant).exec(ctx, `INSERT INTO deployment_variants AS v
			(tenant_id, deployment_id, name, rendered_commit, rendered_key, rendered_digest, rendered_at, rendered_reads, rendered_volatile, error, error_reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (tenant_id, deployment_id, name) DO UPDATE SET rendered_commit = excluded.rendered_commit,
			rendered_key = excluded.rendered_key, rendered_digest = excluded.rendered_digest,
			rendered_at = excluded.rendered_at, rendered_reads = excluded.rendered_reads,
			rendered_volatile = excluded.rendered_volatile, error = excluded.error, error_reason = excluded.error_reason
		WHERE v.rendered_commit <> excluded.rendered_commit OR v.rendered_key <> excluded.rendered_key
			OR v.rendered_digest IS DISTINCT FROM excluded.rendered_digest OR v.rendered_reads <> excluded.rendered_reads
			OR v.rendered_volatile <> excluded.rendered_volatile OR v.error <> excluded.error OR v.error_reason <> excluded.error_reason`,
		tenant, id, v.Name, r.Commit, r.Key, nullable(r.Digest), micros(r.At), textList(r.Reads), r.Volatile, v.Error, v.Reason)
	if err != nil || n == 0 {
		return err
	}
	if err := s.setNewest(ctx, tenant, id, v.Name, r.Digest); err != nil {
		return err
	}
	return s.recordDeployment(tenant, id)
}

func (s deployments) KeepVariants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, names []string) error {
	n, err := s.keepVariants(ctx, tenant, id, names)
	if err == nil && n == 0 {
		err = s.exists(ctx, tenant, id)
	}
	if err != nil {
		return fmt.Errorf("removing variants of deployment %q: %w", id, err)
	}
	if n == 0 {
		return nil
	}
	return s.recordDeployment(tenant, id)
}

// keepVariants clears the newest digest of targets whose variant is removed: nothing waits for them.
func (s deployments) keepVariants(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, names []string) (int64, error) {
	keep := idList(names)
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM deployment_variants
		WHERE tenant_id = $1 AND deployment_id = $2 AND name NOT IN (SELECT value FROM json_each($3))`, tenant, id, keep)
	if err != nil || n == 0 {
		return n, err
	}
	_, err = s.tx.of(tenant).exec(ctx, `UPDATE targets SET newest_digest = NULL
		WHERE tenant_id = $1 AND deployment_id = $2 AND variant <> '' AND newest_digest IS NOT NULL
			AND variant NOT IN (SELECT value FROM json_each($3))`, tenant, id, keep)
	return n, err
}
