package placement

import (
	"context"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// keepsVariant reports whether a target keeps its variant of a chart although the capabilities of its cluster
// have changed: a volatile chart would get other random values, or another time. It moves when the chart is
// rendered again because its input changed.
func keepsVariant(ctx context.Context, tx store.Tx, d fleet.Deployment, has, wants string) (bool, error) {
	if has == wants || !fleet.SameButCapabilities(has, wants) {
		return false, nil
	}
	variants, err := tx.Deployments().Variants(ctx, d.TenantID, d.ID)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(variants, func(v fleet.Variant) bool { return v.Name == has })
	return i >= 0 && variants[i].Rendered.Volatile && variants[i].Rendered.Digest != "", nil
}
