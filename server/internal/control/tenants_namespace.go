package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// deleteMissingNamespace deletes the tenant of a Kubernetes namespace that does not exist any more, as soon as nothing is
// left of it. Repositories that nothing uses, and the environment for deployments without a destination, do not count:
// deployments created them.
func (s *Service) deleteMissingNamespace(ctx context.Context, tx store.Tx, id fleet.TenantID) error {
	t, err := tx.Tenants().Get(ctx, id)
	if err != nil {
		return ignoreMissing(err)
	}
	owned, ok, err := ownerOf(ctx, tx, resource{t.ID, fleet.OwnedTenant, string(t.ID), t.Name})
	if err != nil || !ok || owned.MissingSince.IsZero() {
		return err
	}
	if inUse, err := tenantInUse(ctx, tx, t); err != nil || inUse {
		return err
	}
	if err := deleteRepositories(ctx, tx, t); err != nil {
		return err
	}
	env, err := tx.Environments().ByName(ctx, t.ID, localEnvironment)
	if err == nil {
		err = tx.Environments().Delete(ctx, t.ID, env.ID)
	}
	if err := ignoreMissing(err); err != nil {
		return err
	}
	if err := errors.Join(s.checkEmpty(ctx, tx, t), dropLeavings(ctx, tx, t)); err != nil {
		return err
	}
	if err := tx.Tenants().Delete(ctx, t.ID); err != nil {
		return err
	}
	e := tenantEvent("tenant.delete", t, owned.Owner.String()+" was deleted")
	e.TenantID = "" // the log of the tenant is deleted with it
	return s.audit(ctx, tx, auth.Principal{Name: "system", Component: "kubernetes"}, e)
}

// tenantInUse reports whether a tenant has something that only its users delete.
func tenantInUse(ctx context.Context, tx store.Tx, t fleet.Tenant) (bool, error) {
	one := store.Page{Limit: 1}
	deployments, err := tx.Deployments().List(ctx, t.ID, store.DeploymentFilter{Page: one})
	if err != nil || len(deployments) > 0 {
		return true, err
	}
	credentials, err := tx.Credentials().List(ctx, t.ID, one)
	if err != nil || len(credentials) > 0 {
		return true, err
	}
	agents, err := tx.Agents().Count(ctx, t.ID)
	if err != nil || agents > 0 {
		return true, err
	}
	environments, err := tx.Environments().List(ctx, t.ID, store.Whole())
	for _, e := range environments {
		if e.Name != fleet.DefaultEnvironment && e.Name != localEnvironment {
			return true, err
		}
	}
	if err != nil {
		return true, err
	}
	given, err := tx.Grants().Given(ctx, t.ID, one)
	return len(given) > 0, err
}

func deleteRepositories(ctx context.Context, tx store.Tx, t fleet.Tenant) error {
	repositories, err := listing.Repositories(ctx, tx, t.ID)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		if err := tx.Repositories().Delete(ctx, t.ID, r.ID); err != nil {
			return err
		}
	}
	return nil
}
