package rollout

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Objects unpacks the objects of a bundle.
func Objects(digest string, content []byte) ([]manifest.Object, error) {
	set, err := manifest.Unpack(digest, content, wire.MaxBundleContent)
	if err != nil {
		return nil, err
	}
	return set.Objects(), nil
}

// BundleObjects reads the objects of a bundle.
func (s *Planner) BundleObjects(ctx context.Context, tenant fleet.TenantID, digest string) ([]manifest.Object, error) {
	var bundle fleet.Bundle
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		bundle, err = tx.Bundles().Get(ctx, tenant, digest)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading bundle %s: %w", digest, err)
	}
	return Objects(digest, bundle.Content)
}
