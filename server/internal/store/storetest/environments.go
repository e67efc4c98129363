package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var environmentTests = map[string]func(*testing.T, store.Store){
	"store their selectors":        environmentsKeepWhatTheySelect,
	"are edited":                   environmentsAreEdited,
	"stay while something uses it": environmentDeletion,
	"store a cluster":              pushEnvironments,
}

func pushEnvironments(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	c := newCredential(w.tenant.ID, "environment.x")
	c.Kind, c.Username, c.KnownHosts = fleet.CredentialKubernetes, "", ""
	want := fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "push", MatchLabels: map[string]string{}, SpecRevision: 1, CreatedAt: at(1),
		Push: &fleet.Push{APIURL: "https://api.example.com", Namespaces: []string{"a", "b"}, ClusterResources: true, CredentialID: c.ID, Instance: w.agent.ID},
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Credentials().Create(ctx, c), tx.Environments().Create(ctx, want))
	})
	want.Push.CredentialRevision = 1
	same(t, "created", getEnvironment(t, s, want), want)
	for _, listed := range read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Credential, error) {
		return tx.Credentials().List(ctx, w.tenant.ID, store.Page{})
	}) {
		if listed.ID == c.ID {
			t.Error("the credential of an environment is listed with those of repositories")
		}
	}
	edited := *want.Push
	edited.APIURL, edited.Namespaces, edited.ClusterResources, edited.Instance, edited.MovingFrom = "https://other.example.com", nil, false, "", w.agent.ID
	want.Push, want.SpecRevision = &edited, 2
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Environments().Update(ctx, want), tx.Credentials().Update(ctx, c))
	})
	edited.CredentialRevision = 2
	same(t, "edited", getEnvironment(t, s, want), want)
	check := fleet.EndpointCheck{Revision: "2.2", Cause: fleet.Cause{Reason: fleet.ReasonEndpointReady, Message: "fine"}, AsOf: at(30)}
	before := last(t, s)
	for _, when := range []int{30, 40} { // the second one has nothing new
		check.AsOf = at(when)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Environments().SetCheck(ctx, w.tenant.ID, want.ID, check)
		})
	}
	edited.Check = check
	edited.Check.AsOf = at(30)
	same(t, "checked", getEnvironment(t, s, want), want)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeEnvironment, ID: string(want.ID)}})
}

func environmentsKeepWhatTheySelect(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	everything := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: w.tenant.ID, Name: "all", SpecRevision: 1, CreatedAt: at(1)}
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
		same(t, "by id", getEnvironment(t, s, want), want)
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
	same(t, "count", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) {
		return tx.Environments().Count(ctx, w.tenant.ID)
	}), 2)
}

func getEnvironment(t *testing.T, s store.Store, e fleet.Environment) fleet.Environment {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Environment, error) {
		return tx.Environments().Get(ctx, e.TenantID, e.ID)
	})
}

func environmentsAreEdited(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	want := w.env
	want.Agents, want.MatchLabels = []string{"edge-3"}, map[string]string{"tier": "db"}
	want.Suspension = fleet.Suspension{At: at(20), By: "ada", Reason: "freeze"}
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Environments().Update(ctx, want) })
	want.SpecRevision = 2
	same(t, "environment", getEnvironment(t, s, w.env), want)
	want.Suspension, want.Agents = fleet.Suspension{}, nil
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Environments().Update(ctx, want) })
	want.SpecRevision = 3
	same(t, "environment", getEnvironment(t, s, w.env), want)
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeEnvironment, ID: string(w.env.ID)}
	same(t, "changes", since(t, s, before), []store.Change{record, record})
}

func environmentDeletion(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	id := w.tenant.ID
	remove := func(ctx context.Context, tx store.Tx) error { return tx.Environments().Delete(ctx, id, w.env.ID) }
	guests := grantedTarget(t, s, w)
	steps := []func(context.Context, store.Tx) error{
		func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.Targets().Remove(ctx, id, w.target.ID), tx.Deployments().Remove(ctx, id, w.deployment.ID))
		},
		func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.Targets().Remove(ctx, w.guest.ID, guests.ID), tx.Deployments().Remove(ctx, w.guest.ID, guests.DeploymentID))
		},
		func(ctx context.Context, tx store.Tx) error { return tx.Grants().Delete(ctx, id, w.grant.ID) },
	}
	for _, step := range steps {
		refuse(t, s, store.ErrExists, remove)
		update(t, s, step)
	}
	before := last(t, s)
	update(t, s, remove)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: id, Kind: store.ChangeAccessRule, ID: string(w.access.ID)},
		{TenantID: id, Kind: store.ChangeEnvironment, ID: string(w.env.ID)},
	})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.Environment, error) {
		return tx.Environments().Get(ctx, id, w.env.ID)
	})
	refuse(t, s, store.ErrNotFound, remove)
}
