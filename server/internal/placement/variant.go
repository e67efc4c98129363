package placement

import (
	"context"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// keepsVariant reports whether a target stays with its variant of a chart though its cluster is capable of
// something else now: one that is volatile would get other random values, or another time, just for that. It moves
// when the chart is rendered again because of what it reads.
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
