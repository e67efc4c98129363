package storetest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// placeCalls are the calls about environments, grants, repositories, and credentials.
var placeCalls = []call{
	{"Environments.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Environments().Create(ctx, fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: "new", CreatedAt: at(1)})
	}},
	{"Environments.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Environments().Get(ctx, tenant, w.env.ID)
	}},
	{"Environments.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Environments().ByName(ctx, tenant, w.env.Name)
	}},
	{"Environments.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Environments().List(ctx, tenant, store.Page{})
	}},
	{"Environments.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		e := w.env
		e.TenantID, e.Agents = tenant, nil
		return nil, tx.Environments().Update(ctx, e)
	}},
	{"Environments.SetCheck", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Environments().SetCheck(ctx, tenant, w.env.ID, fleet.EndpointCheck{Revision: "1.1", Cause: fleet.Cause{Reason: fleet.ReasonEndpointReady}, AsOf: at(9)})
	}},
	{"Environments.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Environments().Delete(ctx, tenant, w.env.ID)
	}},
	{"Environments.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Environments().Count(ctx, tenant)
	}},
	{"Grants.Create", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		g := newGrant(w.env, w.guest.ID)
		g.TenantID = tenant
		return nil, tx.Grants().Create(ctx, g)
	}},
	{"Grants.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Grants().Get(ctx, tenant, w.grant.ID)
	}},
	{"Grants.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		g := w.grant
		g.TenantID, g.Limits = tenant, fleet.Limits{}
		return nil, tx.Grants().Update(ctx, g)
	}},
	{"Grants.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Grants().Delete(ctx, tenant, w.grant.ID)
	}},
	{"Grants.Given", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Grants().Given(ctx, tenant, store.Page{})
	}},
	{"Grants.To", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Grants().To(ctx, tenant, store.Page{})
	}},
	{"Grants.OfEnvironment", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		// The owner is not a grantee.
		grantee := tenant
		if grantee == w.tenant.ID {
			grantee = w.guest.ID
		}
		return tx.Grants().OfEnvironment(ctx, grantee, w.env.ID)
	}},
	{"Repositories.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Repositories().Create(ctx, fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: tenant, URL: "https://new", CreatedAt: at(1)})
	}},
	{"Repositories.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().Get(ctx, tenant, w.repo.ID)
	}},
	{"Repositories.GetAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().GetAllTenants(ctx, w.repo.ID)
	}},
	{"Repositories.ByURL", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().ByURL(ctx, tenant, w.repo.URL)
	}},
	{"Repositories.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Repositories().List(ctx, tenant, store.RepositoryFilter{})
	}},
	{"Repositories.Problems", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().Problems(ctx, tenant, []fleet.RepositoryID{w.repo.ID})
	}},
	{"Repositories.OfCredential", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Repositories().OfCredential(ctx, tenant, w.credential.ID)
	}},
	{"Repositories.ListAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Repositories().ListAllTenants(ctx)
	}},
	{"Repositories.SetCredential", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().SetCredential(ctx, tenant, w.repo.ID, "")
	}},
	{"Repositories.SetPolicy", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().SetPolicy(ctx, tenant, w.repo.ID, true, "x")
	}},
	{"Repositories.Evaluated", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		r, err := tx.Repositories().Evaluated(ctx, tenant, w.repo.ID, "main")
		return r.Except, err
	}},
	{"Repositories.SetEvaluated", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().SetEvaluated(ctx, tenant, w.repo.ID, []store.EvaluatedRef{{Revision: "main", Commit: "c"}}, []string{"main"})
	}},
	{"Repositories.ExceptEvaluated", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().ExceptEvaluated(ctx, tenant, w.repo.ID, "main", []fleet.DeploymentID{w.deployment.ID})
	}},
	{"Repositories.SetChecked", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().SetChecked(ctx, tenant, w.repo.ID, at(50), "broken", "")
	}},
	{"Repositories.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Repositories().Delete(ctx, tenant, w.repo.ID)
	}},
	{"Repositories.Count", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Repositories().Count(ctx, tenant)
	}},
	{"Credentials.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Credentials().Create(ctx, newCredential(tenant, "new"))
	}},
	{"Credentials.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Credentials().Get(ctx, tenant, w.credential.ID)
	}},
	{"Credentials.ByName", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Credentials().ByName(ctx, tenant, w.credential.Name)
	}},
	{"Credentials.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Credentials().List(ctx, tenant, store.Page{})
	}},
	{"Credentials.Update", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		c := w.credential
		c.TenantID, c.Username = tenant, "mallory"
		return nil, tx.Credentials().Update(ctx, c)
	}},
	{"Credentials.Reseal", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		was := w.credential
		was.TenantID = tenant
		sealed, err := tx.Credentials().Reseal(ctx, was, fleet.Sealed{KeyID: "k9"})
		if err == nil && !sealed {
			err = store.ErrNotFound
		}
		return nil, err
	}},
	{"Credentials.Delete", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Credentials().Delete(ctx, tenant, w.credential.ID)
	}},
	{"Credentials.NotSealedByAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Credentials().NotSealedByAllTenants(ctx, "k9", 10)
	}},
}
