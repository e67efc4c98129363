package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var environmentTests = map[string]func(*testing.T, store.Store){
	"keep what they select by": func(t *testing.T, s store.Store) {
		w := newWorld(t, s, "a")
		everything := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "all", CreatedAt: at(1)}
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Environments().Create(ctx, everything) })
		same(t, "changes", since(t, s, before), []store.Change{
			{TenantID: w.tenant.ID, Kind: store.ChangeEnvironment, ID: string(everything.ID)}})
		refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
			again := everything
			again.ID = fleet.NewEnvironmentID()
			return tx.Environments().Create(ctx, again)
		})
		for _, want := range []fleet.Environment{w.env, everything} {
			same(t, "by id", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Environment, error) {
				return tx.Environments().Get(ctx, w.tenant.ID, want.ID)
			}), want)
			same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Environment, error) {
				return tx.Environments().ByName(ctx, w.tenant.ID, want.Name)
			}), want)
		}
		list := func(page store.Page) []fleet.Environment {
			return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Environment, error) {
				return tx.Environments().List(ctx, w.tenant.ID, page)
			})
		}
		same(t, "list", list(store.Page{}), []fleet.Environment{everything, w.env})
		same(t, "first page", list(store.Page{Limit: 1}), []fleet.Environment{everything})
		same(t, "second page", list(store.Page{After: "all", Limit: 1}), []fleet.Environment{w.env})
	},
}
