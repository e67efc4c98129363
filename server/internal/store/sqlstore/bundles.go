package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type bundles struct{ tx *Tx }

func (s bundles) Put(ctx context.Context, b fleet.Bundle) error {
	for {
		n, err := s.tx.of(b.TenantID).exec(ctx, `INSERT INTO bundles (tenant_id, digest, size, objects, created_at, content)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			b.TenantID, b.Digest, b.Size, b.Objects, micros(b.CreatedAt), bytesOf(b.Content))
		if err == nil && n == 0 {
			err = s.hold(ctx, b.TenantID, b.Digest)
		}
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted as unused in between
		}
		if err != nil {
			return fmt.Errorf("storing bundle %q: %w", b.Digest, err)
		}
		return nil
	}
}

// hold prevents the deletion of a bundle that this transaction will refer to.
func (s bundles) hold(ctx context.Context, tenant fleet.TenantID, digest string) error {
	var one int
	return s.tx.of(tenant).get(ctx, []any{&one},
		`SELECT 1 FROM bundles WHERE tenant_id = $1 AND digest = $2 /* FOR KEY SHARE */`, tenant, digest)
}

func (s bundles) Get(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
	b := fleet.Bundle{TenantID: tenant, Digest: digest}
	err := s.tx.of(tenant).get(ctx, []any{&b.Size, &b.Objects, timeInto(&b.CreatedAt), &b.Content},
		`SELECT size, objects, created_at, content FROM bundles WHERE tenant_id = $1 AND digest = $2`, tenant, digest)
	if err != nil {
		return fleet.Bundle{}, fmt.Errorf("reading bundle %q: %w", digest, err)
	}
	return b, nil
}

func (s bundles) DeleteUnused(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error) {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM bundles WHERE tenant_id = $1 AND created_at < $2
		AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.tenant_id = $1 AND d.rendered_digest = bundles.digest)
		AND NOT EXISTS (SELECT 1 FROM deployment_variants v WHERE v.tenant_id = $1 AND v.rendered_digest = bundles.digest)
		AND NOT EXISTS (SELECT 1 FROM revision_bundles r WHERE r.tenant_id = $1 AND r.digest = bundles.digest)
		AND NOT EXISTS (SELECT 1 FROM targets t WHERE t.tenant_id = $1 AND t.desired_digest = bundles.digest)
		AND digest NOT IN (SELECT observed_digest FROM targets WHERE tenant_id = $1)`, tenant, micros(before))
	if err != nil {
		return 0, fmt.Errorf("deleting unused bundles: %w", err)
	}
	return int(n), nil
}
