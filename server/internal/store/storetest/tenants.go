package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var tenantTests = map[string]func(*testing.T, store.Store){
	"are created once and listed by name": tenantsAreListed,
	"have a quota and may be suspended":   tenantsAreEdited,
	"stay while they own resources":       tenantDeletion,
}

func tenantsAreListed(t *testing.T, s store.Store) {
	b := fleet.Tenant{ID: fleet.NewTenantID(), Name: "b", CreatedAt: at(1)}
	a := fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: at(2), Quota: fleet.Quota{
		Agents: 1, Environments: 2, Repositories: 3, Deployments: 4, Targets: 5, Tokens: 6}}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Create(ctx, b) })
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Create(ctx, a) })
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: "a", CreatedAt: at(3)})
	})
	same(t, "by name", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) {
		return tx.Tenants().ByName(ctx, "a")
	}), a)
	same(t, "by id", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) {
		return tx.Tenants().Get(ctx, a.ID)
	}), a)
	list := func(page store.Page) []fleet.Tenant {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Tenant, error) { return tx.Tenants().List(ctx, page) })
	}
	same(t, "list", list(store.Page{}), []fleet.Tenant{a, b})
	same(t, "first page", list(store.Page{Limit: 1}), []fleet.Tenant{a})
	same(t, "second page", list(store.Page{After: "a", Limit: 1}), []fleet.Tenant{b})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) { return tx.Tenants().ByName(ctx, "c") })
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) { return tx.Tenants().Get(ctx, "ten-c") })
	same(t, "changes", since(t, s, 0), []store.Change{
		{TenantID: b.ID, Kind: store.ChangeTenant, ID: string(b.ID)}, {TenantID: a.ID, Kind: store.ChangeTenant, ID: string(a.ID)}})
}

func tenantsAreEdited(t *testing.T, s store.Store) {
	id := newTenant(t, s, "a")
	quota := fleet.Quota{Deployments: 10, Targets: 20}
	suspension := fleet.Suspension{At: at(10), By: "ada", Reason: "moving"}
	want := fleet.Tenant{ID: id, Name: "a", CreatedAt: at(0)}
	steps := []struct {
		reason  string
		do      func(context.Context, store.Tenants) error
		expect  func()
		changes int
	}{
		{"a quota", func(ctx context.Context, x store.Tenants) error { return x.SetQuota(ctx, id, quota) },
			func() { want.Quota = quota }, 1},
		{"the same quota", func(ctx context.Context, x store.Tenants) error { return x.SetQuota(ctx, id, quota) }, func() {}, 0},
		{"a suspension", func(ctx context.Context, x store.Tenants) error { return x.SetSuspension(ctx, id, suspension) },
			func() { want.Suspension = suspension }, 1},
		{"the same suspension", func(ctx context.Context, x store.Tenants) error { return x.SetSuspension(ctx, id, suspension) }, func() {}, 0},
		{"its end", func(ctx context.Context, x store.Tenants) error { return x.SetSuspension(ctx, id, fleet.Suspension{}) },
			func() { want.Suspension = fleet.Suspension{} }, 1},
	}
	for _, step := range steps {
		before := last(t, s)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return step.do(ctx, tx.Tenants()) })
		step.expect()
		same(t, step.reason, read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Tenant, error) { return tx.Tenants().Get(ctx, id) }), want)
		same(t, step.reason+": changes", len(since(t, s, before)), step.changes)
	}
	for _, do := range []func(context.Context, store.Tenants) error{
		func(ctx context.Context, x store.Tenants) error { return x.SetQuota(ctx, "ten-nowhere", quota) },
		func(ctx context.Context, x store.Tenants) error {
			return x.SetSuspension(ctx, "ten-nowhere", suspension)
		},
		func(ctx context.Context, x store.Tenants) error { return x.Delete(ctx, "ten-nowhere") },
	} {
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return do(ctx, tx.Tenants()) })
	}
}

// tenantDeletion removes the resources of a tenant one by one.
func tenantDeletion(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	otherBefore := dump(t, s, other)
	id := w.tenant.ID
	remove := func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Delete(ctx, id) }
	steps := []func(context.Context, store.Tx) error{
		func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, id, w.agent.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Targets().Remove(ctx, id, w.target.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Deployments().Remove(ctx, id, w.deployment.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Delete(ctx, id, w.repo.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Credentials().Delete(ctx, id, w.credential.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Grants().Delete(ctx, id, w.grant.ID) },
		func(ctx context.Context, tx store.Tx) error { return tx.Environments().Delete(ctx, id, w.env.ID) },
	}
	for _, step := range steps {
		refuse(t, s, store.ErrExists, remove)
		update(t, s, step)
	}
	before := last(t, s)
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: id, Kind: store.ChangeTenant, ID: string(id)}})
	after := dump(t, s, w)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APITokenByHash(ctx, w.apiToken.Hash)
	})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Bundle, error) {
		return tx.Bundles().Get(ctx, id, w.bundle.Digest)
	})
	for what, n := range map[string]int{
		"members": len(after["members"].([]fleet.Member)), "events": len(after["events"].([]fleet.Event)),
		"audit": len(after["audit"].([]fleet.AuditEvent)), "operations": len(after["operations"].([]fleet.Operation)),
	} {
		same(t, what+" of a deleted tenant", n, 0)
	}
	same(t, "the other tenant", dump(t, s, other), otherBefore)
	refuse(t, s, store.ErrNotFound, remove)
}

var settingsTests = map[string]func(*testing.T, store.Store){
	"are there from the beginning": func(t *testing.T, s store.Store) {
		get := func() fleet.Settings {
			return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Settings, error) { return tx.Settings().Get(ctx) })
		}
		same(t, "at first", get(), fleet.Settings{Epoch: 1})
		suspension := fleet.Suspension{At: at(10), By: "ada", Reason: "freeze"}
		for range 2 { // the second time is no news
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Settings().SetSuspension(ctx, suspension) })
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Settings().SetEpoch(ctx, 4) })
		}
		same(t, "later", get(), fleet.Settings{Epoch: 4, Suspension: suspension})
		same(t, "changes", since(t, s, 0), []store.Change{{Kind: store.ChangeSettings}, {Kind: store.ChangeSettings}})
	},
}

var memberTests = map[string]func(*testing.T, store.Store){
	"have one role per tenant": func(t *testing.T, s store.Store) {
		w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
		group := fleet.Member{TenantID: w.tenant.ID, Kind: fleet.MemberGroup, Subject: "ops", Role: fleet.RoleViewer, CreatedAt: at(2)}
		namesake := fleet.Member{TenantID: w.tenant.ID, Kind: fleet.MemberGroup, Subject: "ada", Role: fleet.RoleAdmin, CreatedAt: at(2)}
		ada := w.member
		before := last(t, s)
		for _, m := range []fleet.Member{group, namesake, ada} { // the last one is no news
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Members().Put(ctx, m) })
		}
		ada.Role = fleet.RoleAdmin
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Members().Put(ctx, ada) })
		list := func(ctx context.Context, tx store.Tx) ([]fleet.Member, error) {
			return tx.Members().List(ctx, w.tenant.ID, store.Page{})
		}
		same(t, "list", read(t, s, list), []fleet.Member{namesake, group, ada})
		record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeTenant, ID: string(w.tenant.ID)}
		same(t, "changes", since(t, s, before), []store.Change{record, record, record})

		of := func(person string, groups ...string) map[fleet.TenantID][]fleet.Role {
			out := map[fleet.TenantID][]fleet.Role{}
			for _, m := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Member, error) {
				return tx.Members().OfAllTenants(ctx, person, groups)
			}) {
				out[m.TenantID] = append(out[m.TenantID], m.Role)
			}
			return out
		}
		same(t, "of a person", of("ada"), map[fleet.TenantID][]fleet.Role{
			w.tenant.ID: {fleet.RoleAdmin}, other.tenant.ID: {fleet.RoleDeployer}})
		same(t, "of groups", of("", "ops", "none"), map[fleet.TenantID][]fleet.Role{w.tenant.ID: {fleet.RoleViewer}})
		same(t, "of both", of("ada", "ops"), map[fleet.TenantID][]fleet.Role{
			w.tenant.ID: {fleet.RoleViewer, fleet.RoleAdmin}, other.tenant.ID: {fleet.RoleDeployer}})
		same(t, "of nobody", of("bob"), map[fleet.TenantID][]fleet.Role{})

		remove := func(ctx context.Context, tx store.Tx) error {
			return tx.Members().Remove(ctx, w.tenant.ID, fleet.MemberGroup, "ada")
		}
		update(t, s, remove)
		same(t, "list", read(t, s, list), []fleet.Member{group, ada})
		refuse(t, s, store.ErrNotFound, remove)
	},
}
