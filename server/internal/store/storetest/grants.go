package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T10
var grantTests = map[string]func(*testing.T, store.Store){
	"are read by both sides and changed by one": grantsHaveTwoSides,
	"are listed by environment and grantee":     grantsAreListed,
	"let a deployment go to another's agent":    grantsReachAgents,
	"stay while targets use them":               grantDeletion,
}

// grantedTarget deploys something of w's guest to w's agent, by the grant.
func grantedTarget(t *testing.T, s store.Store, w *world) fleet.Target {
	t.Helper()
	repo := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.guest.ID, URL: "https://git.example/guest.git", SpecRevision: 1, CreatedAt: at(5)}
	d := newDeployment(w, "visitor")
	d.TenantID, d.RepositoryID, d.Rendered, d.EnvironmentTenant = w.guest.ID, repo.ID, fleet.Rendered{}, w.tenant.ID
	x := newTarget(w, d, w.agent)
	x.TenantID, x.GrantID, x.Variant, x.Desired.Digest = w.guest.ID, w.grant.ID, "", ""
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Repositories().Create(ctx, repo); err != nil {
			return err
		}
		if err := tx.Deployments().Create(ctx, d); err != nil {
			return err
		}
		return tx.Targets().Create(ctx, x)
	})
	x.DeploymentName, x.Desired.Limits = d.Name, w.grant.Limits
	return x
}

func getGrant(t *testing.T, s store.Store, tenant fleet.TenantID, id fleet.GrantID) fleet.Grant {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Grant, error) { return tx.Grants().Get(ctx, tenant, id) })
}

func grantsHaveTwoSides(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	same(t, "for the owner", getGrant(t, s, w.tenant.ID, w.grant.ID), w.grant)
	same(t, "for the grantee", getGrant(t, s, w.guest.ID, w.grant.ID), w.grant)
	same(t, "by environment", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Grant, error) {
		return tx.Grants().OfEnvironment(ctx, w.guest.ID, w.env.ID)
	}), w.grant)
	before := last(t, s)
	want := w.grant
	want.Limits, want.ServiceAccount = fleet.Limits{Kinds: []string{"Secret"}}, "other/one"
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Grants().Update(ctx, want) })
	same(t, "after an edit", getGrant(t, s, w.guest.ID, w.grant.ID), want)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeEnvironment, ID: string(w.env.ID)},
		{TenantID: w.guest.ID, Kind: store.ChangeEnvironment, ID: string(w.env.ID)}})
	for _, do := range []func(context.Context, store.Grants) error{
		func(ctx context.Context, g store.Grants) error {
			mine := want
			mine.TenantID = w.guest.ID
			return g.Update(ctx, mine)
		},
		func(ctx context.Context, g store.Grants) error { return g.Delete(ctx, w.guest.ID, w.grant.ID) },
	} {
		refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return do(ctx, tx.Grants()) })
	}
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Grants().Create(ctx, newGrant(w.env, w.guest.ID))
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Grants().Create(ctx, newGrant(w.env, "ten-nowhere"))
	})
	same(t, "in the end", getGrant(t, s, w.tenant.ID, w.grant.ID), want)
}

func grantsAreListed(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	first := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "first", CreatedAt: at(1)}
	another := newTenant(t, s, "0-another")
	one, two := newGrant(first, w.guest.ID), newGrant(w.env, another)
	two.Limits = fleet.Limits{}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Environments().Create(ctx, first); err != nil {
			return err
		}
		if err := tx.Grants().Create(ctx, two); err != nil {
			return err
		}
		return tx.Grants().Create(ctx, one)
	})
	one.Environment, one.OwnerName, one.GranteeName = "first", w.tenant.Name, w.guest.Name
	two.Environment, two.OwnerName, two.GranteeName = w.env.Name, w.tenant.Name, "0-another"
	cases := []struct {
		reason      string
		tenant      fleet.TenantID
		given, made []fleet.Grant
	}{
		{"the owner", w.tenant.ID, []fleet.Grant{one, two, w.grant}, nil},
		{"a grantee of two", w.guest.ID, nil, []fleet.Grant{one, w.grant}},
		{"a grantee of one", another, nil, []fleet.Grant{two}},
	}
	for _, c := range cases {
		same(t, c.reason+" has given", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Grant, error) {
			return tx.Grants().Given(ctx, c.tenant, store.Page{})
		}), c.given)
		same(t, c.reason+" was given", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Grant, error) {
			return tx.Grants().To(ctx, c.tenant, store.Page{})
		}), c.made)
	}
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Grant, error) {
		return tx.Grants().OfEnvironment(ctx, another, first.ID)
	})
}

func grantsReachAgents(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	x := grantedTarget(t, s, w)
	same(t, "for its tenant", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.guest.ID, x.ID)
	}), x)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.tenant.ID, x.ID)
	})
	d := read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
		return tx.Deployments().Get(ctx, w.guest.ID, x.DeploymentID)
	})
	same(t, "environment", d.Environment, "a/staging")
	of := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
		return tx.Deployments().OfEnvironmentAllTenants(ctx, w.env.ID)
	})
	if len(of) != 2 {
		t.Errorf("deployments to the environment: got %d, want the owner's and the guest's", len(of))
	}
	want := []fleet.Target{w.target, x}
	if w.guest.ID < w.tenant.ID {
		want = []fleet.Target{x, w.target}
	}
	listings := map[string]func(context.Context, store.Targets) ([]fleet.Target, error){
		"OfAgentAllTenants": func(ctx context.Context, l store.Targets) ([]fleet.Target, error) {
			return l.OfAgentAllTenants(ctx, w.agent.ID)
		},
		"GetAllTenants": func(ctx context.Context, l store.Targets) ([]fleet.Target, error) {
			return l.GetAllTenants(ctx, w.agent.ID, []fleet.TargetID{x.ID, fleet.NewTargetID(), w.target.ID})
		},
	}
	byID := []store.Standing{standing(w.target), standing(x)}
	if x.ID < w.target.ID {
		slices.Reverse(byID)
	}
	same(t, "StandingsAllTenants", read(t, s, func(ctx context.Context, tx store.Tx) ([]store.Standing, error) {
		return tx.Targets().StandingsAllTenants(ctx, []fleet.TargetID{x.ID, fleet.NewTargetID(), w.target.ID})
	}), byID)
	for name, list := range listings {
		same(t, name, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) { return list(ctx, tx.Targets()) }), want)
	}
	same(t, "OfGrantAllTenants", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
		return tx.Targets().OfGrantAllTenants(ctx, w.grant.ID)
	}), []fleet.Target{x})
	same(t, "found by its agent", len(read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Deployment, error) {
		return tx.Deployments().List(ctx, w.guest.ID, store.DeploymentFilter{Agent: w.agent.ID, Health: fleet.HealthInProgress})
	})), 1)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		d := newDeployment(w, "uninvited")
		d.EnvironmentTenant = w.guest.ID // the environment is not that tenant's
		return tx.Deployments().Create(ctx, d)
	})
}

func grantDeletion(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	x := grantedTarget(t, s, w)
	remove := func(ctx context.Context, tx store.Tx) error { return tx.Grants().Delete(ctx, w.tenant.ID, w.grant.ID) }
	refuse(t, s, store.ErrExists, remove)
	x.GrantID, x.DetachedAt, x.DetachedWhy = "", at(60), "grant revoked"
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Targets().SetPlace(ctx, x); err != nil {
			return err
		}
		return remove(ctx, tx)
	})
	x.Desired.Limits = fleet.Limits{}
	same(t, "target", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Target, error) {
		return tx.Targets().Get(ctx, w.guest.ID, x.ID)
	}), x)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.guest.ID, Kind: store.ChangeDesired, ID: string(x.ID), AgentID: w.agent.ID, DeploymentID: x.DeploymentID},
		{TenantID: w.tenant.ID, Kind: store.ChangeEnvironment, ID: string(w.env.ID)},
		{TenantID: w.guest.ID, Kind: store.ChangeEnvironment, ID: string(w.env.ID)}})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Grant, error) {
		return tx.Grants().Get(ctx, w.tenant.ID, w.grant.ID)
	})
	refuse(t, s, store.ErrNotFound, remove)
}
