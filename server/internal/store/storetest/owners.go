package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var ownerTests = map[string]func(*testing.T, store.Store){
	"are kept":                        ownersAreKept,
	"are deleted with their resource": ownersFall,
	"find the tenant of a namespace":  ownersOfTenants,
}

// ownedTenant is the tenant of a world, owned by a namespace.
func ownedTenant(w *world) fleet.Owned {
	return fleet.Owned{
		TenantID: w.tenant.ID, Kind: fleet.OwnedTenant, ID: string(w.tenant.ID),
		Owner: fleet.Owner{Kind: "Namespace", Name: w.tenant.Name, UID: "uid-namespace-" + w.tenant.Name},
	}
}

func ownersAreKept(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	other := withConfig(t, s, newWorld(t, s, "b"))
	for name, list := range map[string]func(ctx context.Context, tx store.Tx) ([]fleet.Owned, error){
		"of a resource": func(ctx context.Context, tx store.Tx) ([]fleet.Owned, error) {
			return tx.Owners().Of(ctx, w.tenant.ID, fleet.OwnedDeployment, []string{w.owned.ID, "other"})
		},
		"by owner": func(ctx context.Context, tx store.Tx) ([]fleet.Owned, error) {
			return tx.Owners().ByOwner(ctx, w.tenant.ID, w.owned.Owner.Kind, w.owned.Owner.Name)
		},
	} {
		same(t, name, read(t, s, list), []fleet.Owned{w.owned})
	}
	all := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Owned, error) {
		return tx.Owners().ListAllTenants(ctx, fleet.OwnedDeployment)
	})
	if len(all) != 2 {
		t.Errorf("of all tenants: %+v, want those of %s and %s", all, w.tenant.Name, other.tenant.Name)
	}
	before := last(t, s)
	w.owned.Owner.UID, w.owned.Owner.Generation, w.owned.MissingSince = "uid-2", 1, time.Time{}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Owners().Put(ctx, w.owned) })
	same(t, "after it was replaced", allOwned(t, s, w), []fleet.Owned{w.owned, ownedTenant(w)})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: w.owned.ID, DeploymentID: w.deployment.ID}})
}

func ownersFall(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	owned := map[fleet.OwnedKind]string{
		fleet.OwnedAgent: string(w.agent.ID), fleet.OwnedEnvironment: string(w.env.ID), fleet.OwnedDeployment: string(w.deployment.ID),
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		var errs []error
		for kind, id := range owned {
			errs = append(errs, tx.Owners().Put(ctx, fleet.Owned{TenantID: w.tenant.ID, Kind: kind, ID: id, Owner: w.owned.Owner}))
		}
		return errors.Join(errs...)
	})
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID) })
	if left := allOwned(t, s, w); len(left) != 3 {
		t.Errorf("after the agent was deleted: %+v, want the owners of deployment, environment and tenant", left)
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.Owners().Remove(ctx, w.tenant.ID, fleet.OwnedDeployment, string(w.deployment.ID))
	})
	same(t, "after the owner of the deployment was removed", allOwned(t, s, w),
		[]fleet.Owned{{TenantID: w.tenant.ID, Kind: fleet.OwnedEnvironment, ID: string(w.env.ID), Owner: w.owned.Owner}, ownedTenant(w)})
	missing := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Owners().Put(t.Context(), fleet.Owned{TenantID: w.tenant.ID, Kind: fleet.OwnedRun, ID: "nowhere", Owner: w.owned.Owner})
	})
	if missing == nil {
		t.Error("a resource that does not exist got an owner")
	}
}

func allOwned(t *testing.T, s store.Store, w *world) []fleet.Owned {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Owned, error) {
		return tx.Owners().All(ctx, w.tenant.ID)
	})
}

func ownersOfTenants(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	same(t, "tenant", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Owned, error) {
		return tx.Owners().NamespaceAllTenants(ctx, ownedTenant(w).Owner.UID)
	}), ownedTenant(w))
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Owners().NamespaceAllTenants(ctx, "uid-2")
		return err
	})
}
