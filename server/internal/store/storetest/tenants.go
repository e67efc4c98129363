package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var tenantTests = map[string]func(*testing.T, store.Store){
	"are created once and listed by name": func(t *testing.T, s store.Store) {
		b := fleet.Tenant{ID: fleet.NewTenantID(), Name: "b", CreatedAt: at(1)}
		a := fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: at(2)}
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Create(ctx, b) })
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Create(ctx, a) })
		refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: at(3)})
		})
		same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) {
			return tx.Tenants().ByName(ctx, "a")
		}), a)
		same(t, "list", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Tenant, error) {
			return tx.Tenants().List(ctx)
		}), []fleet.Tenant{a, b})
		missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) { return tx.Tenants().ByName(ctx, "c") })
	},
}
