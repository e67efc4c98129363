package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// estate is a tenant with one of each.
type estate struct {
	tenant fleet.TenantID
	agent  fleet.Agent
	repo   fleet.RepositoryID
	env    fleet.Environment
}

// neighbours are two tenants, of which the first has granted its environment to the second, and the
// second has a deployment there.
type neighbours struct {
	host, guest estate
	grant       fleet.Grant
	deployment  fleet.Deployment
}

func newEstate(t *testing.T, s store.Store, name string) estate {
	t.Helper()
	out := estate{tenant: fleet.NewTenantID(), repo: fleet.NewRepositoryID()}
	out.agent = newAgent(out.tenant, fleet.NewAgentID(), name)
	out.env = newEnvironment(out.tenant, "default")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.Tenants().Create(ctx, fleet.Tenant{ID: out.tenant, Name: name, CreatedAt: time.Now()}),
			tx.Agents().Create(ctx, out.agent),
			tx.Repositories().Create(ctx, fleet.Repository{ID: out.repo, TenantID: out.tenant, URL: "https://git.example/" + name, CreatedAt: time.Now()}),
			tx.Environments().Create(ctx, out.env))
	})
	return out
}

func newNeighbours(t *testing.T, s store.Store) *neighbours {
	t.Helper()
	n := &neighbours{host: newEstate(t, s, "host"), guest: newEstate(t, s, "guest")}
	n.grant = fleet.Grant{ID: fleet.NewGrantID(), TenantID: n.host.tenant, EnvironmentID: n.host.env.ID, Grantee: n.guest.tenant, CreatedAt: time.Now()}
	n.deployment = n.newDeployment(n.guest, "visit")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Grants().Create(ctx, n.grant), tx.Deployments().Create(ctx, n.deployment))
	})
	return n
}

// newDeployment is one to the environment of the host.
func (n *neighbours) newDeployment(of estate, name string) fleet.Deployment {
	return fleet.Deployment{ID: fleet.NewDeploymentID(), TenantID: of.tenant, Name: name, RepositoryID: of.repo,
		EnvironmentTenant: n.host.tenant, EnvironmentID: n.host.env.ID, CreatedAt: time.Now()}
}

func newEnvironment(tenant fleet.TenantID, name string) fleet.Environment {
	return fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: name, CreatedAt: time.Now()}
}

// side is one of two competing decisions: it writes unless it sees that the other has.
type side struct {
	sees  func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error)
	write func(ctx context.Context, tx store.Tx, n *neighbours) error
}

func makesEnvironment(tenant func(*neighbours) fleet.TenantID, name string) func(context.Context, store.Tx, *neighbours) error {
	return func(ctx context.Context, tx store.Tx, n *neighbours) error {
		return tx.Environments().Create(ctx, newEnvironment(tenant(n), name))
	}
}

func seesEnvironment(tenant func(*neighbours) fleet.TenantID) func(context.Context, store.Tx, *neighbours) (bool, error) {
	return func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
		list, err := tx.Environments().List(ctx, tenant(n), store.Page{})
		return len(list) > 1, err
	}
}

func ofHost(n *neighbours) fleet.TenantID  { return n.host.tenant }
func ofGuest(n *neighbours) fleet.TenantID { return n.guest.tenant }

var decisions = []struct {
	reason string
	sides  [2]side
}{
	{"within a tenant", [2]side{
		{seesEnvironment(ofHost), makesEnvironment(ofHost, "one")}, {seesEnvironment(ofHost), makesEnvironment(ofHost, "two")}}},
	{"on the data of another tenant", [2]side{
		{seesEnvironment(ofGuest), makesEnvironment(ofHost, "x")}, {seesEnvironment(ofHost), makesEnvironment(ofGuest, "x")}}},
	{"across all tenants", [2]side{
		{seesRepositoryInUse, makesEnvironment(ofHost, "x")},
		{seesEnvironment(ofHost), func(ctx context.Context, tx store.Tx, n *neighbours) error {
			d := n.newDeployment(n.guest, "x")
			d.RepositoryID = fleet.NewRepositoryID()
			return errors.Join(tx.Repositories().Create(ctx, fleet.Repository{ID: d.RepositoryID, TenantID: n.guest.tenant,
				URL: "https://git.example/other", CreatedAt: time.Now()}), tx.Deployments().Create(ctx, d))
		}}}},
	{"on the settings", [2]side{
		{func(ctx context.Context, tx store.Tx, _ *neighbours) (bool, error) {
			s, err := tx.Settings().Get(ctx)
			return s.Suspension.Active(), err
		}, makesEnvironment(ofHost, "x")},
		{seesEnvironment(ofHost), func(ctx context.Context, tx store.Tx, _ *neighbours) error {
			return tx.Settings().SetSuspension(ctx, fleet.Suspension{At: time.Now()})
		}}}},
	{"on the settings of a tenant", [2]side{
		{func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
			x, err := tx.Tenants().Get(ctx, n.guest.tenant)
			return x.Suspension.Active(), err
		}, makesEnvironment(ofHost, "x")},
		{seesEnvironment(ofHost), func(ctx context.Context, tx store.Tx, n *neighbours) error {
			return tx.Tenants().SetSuspension(ctx, n.guest.tenant, fleet.Suspension{At: time.Now()})
		}}}},
	{"on which tenants there are", [2]side{
		{func(ctx context.Context, tx store.Tx, _ *neighbours) (bool, error) {
			_, err := tx.Tenants().ByName(ctx, "third")
			if errors.Is(err, store.ErrNotFound) {
				return false, nil
			}
			return true, err
		}, makesEnvironment(ofHost, "x")},
		{seesEnvironment(ofHost), func(ctx context.Context, tx store.Tx, _ *neighbours) error {
			return tx.Tenants().Create(ctx, fleet.Tenant{ID: fleet.NewTenantID(), Name: "third", CreatedAt: time.Now()})
		}}}},
	{"on the visitors of an environment", [2]side{
		{seesVisitor("new", ""), changesEnvironment},
		{seesEnvironmentChanged, func(ctx context.Context, tx store.Tx, n *neighbours) error {
			return tx.Deployments().Create(ctx, n.newDeployment(n.guest, "new"))
		}}}},
	{"on the data of a visitor", [2]side{
		{seesVisitor("visit", "elsewhere"), changesEnvironment},
		{seesEnvironmentChanged, func(ctx context.Context, tx store.Tx, n *neighbours) error {
			d := n.deployment
			d.Namespace = "elsewhere"
			return tx.Deployments().Update(ctx, d)
		}}}},
	{"on a visitor that leaves", [2]side{
		{func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
			list, err := tx.Deployments().OfEnvironmentAllTenants(ctx, n.host.env.ID)
			return len(list) == 0, err
		}, changesEnvironment},
		{seesEnvironmentChanged, func(ctx context.Context, tx store.Tx, n *neighbours) error {
			return tx.Deployments().MarkDeleted(ctx, n.guest.tenant, n.deployment.ID, time.Now())
		}}}},
	{"on the visitors of an agent", [2]side{
		{func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
			list, err := tx.Targets().OfAgentAllTenants(ctx, n.host.agent.ID)
			return len(list) > 0, err
		}, func(ctx context.Context, tx store.Tx, n *neighbours) error {
			return tx.Agents().Update(ctx, n.host.agent)
		}},
		{func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
			a, err := tx.Agents().Get(ctx, n.host.tenant, n.host.agent.ID)
			return a.SpecRevision > 1, err
		}, func(ctx context.Context, tx store.Tx, n *neighbours) error {
			return tx.Targets().Create(ctx, fleet.Target{ID: fleet.NewTargetID(), TenantID: n.guest.tenant, DeploymentID: n.deployment.ID,
				AgentTenant: n.host.tenant, AgentID: n.host.agent.ID, AgentName: n.host.agent.Name, GrantID: n.grant.ID})
		}}}},
}

func seesRepositoryInUse(ctx context.Context, tx store.Tx, _ *neighbours) (bool, error) {
	list, err := tx.Repositories().ListAllTenants(ctx)
	return len(list) > 1, err
}

func seesVisitor(name, namespace string) func(context.Context, store.Tx, *neighbours) (bool, error) {
	return func(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
		list, err := tx.Deployments().OfEnvironmentAllTenants(ctx, n.host.env.ID)
		for _, d := range list {
			if d.Name == name && d.Namespace == namespace {
				return true, err
			}
		}
		return false, err
	}
}

func changesEnvironment(ctx context.Context, tx store.Tx, n *neighbours) error {
	return tx.Environments().Update(ctx, n.host.env)
}

func seesEnvironmentChanged(ctx context.Context, tx store.Tx, n *neighbours) (bool, error) {
	e, err := tx.Environments().Get(ctx, n.host.tenant, n.host.env.ID)
	return e.SpecRevision > 1, err
}

// TestDecisionsAreMadeOnWhatIsTrue lets two transactions read, and then write what the other should have read,
// in both orders.
func TestDecisionsAreMadeOnWhatIsTrue(t *testing.T) {
	t.Parallel()
	for _, c := range decisions {
		for first, order := range []string{"the first first", "the second first"} {
			t.Run(c.reason+"/"+order, func(t *testing.T) {
				t.Parallel()
				s := pg.Open(t)
				n := newNeighbours(t, s)
				winner, loser := c.sides[first], c.sides[1-first]
				tries, wrote := 0, false
				update(t, s, func(ctx context.Context, tx store.Tx) error {
					tries++
					wrote = false
					done, err := loser.sees(ctx, tx, n)
					if tries == 1 {
						decide(t, s, n, winner)
					}
					if err != nil || done {
						return err
					}
					wrote = true
					return loser.write(ctx, tx, n)
				})
				if wrote || tries != 2 {
					t.Errorf("after %d tries the second one wrote: %t; want 2 tries, and that it saw the write of the other", tries, wrote)
				}
			})
		}
	}
}

// decide runs one complete decision that sees nothing of the other.
func decide(t *testing.T, s store.Store, n *neighbours, x side) {
	t.Helper()
	tries := 0
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		tries++
		done, err := x.sees(ctx, tx, n)
		if err != nil || done {
			t.Errorf("the first one sees the other: %t, error %v", done, err)
			return err
		}
		return x.write(ctx, tx, n)
	})
	if tries != 1 {
		t.Errorf("the first one took %d tries, want 1", tries)
	}
}

// TestTenantsDoNotDisturbEachOther writes for one tenant, logins, and servers while another tenant has read
// everything that a decision may read.
func TestTenantsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	n := newNeighbours(t, s)
	other := newEstate(t, s, "other")
	tries := 0
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		tries++
		for _, err := range readAll(ctx, tx, n) {
			if err != nil {
				return err
			}
		}
		err := s.Update(ctx, func(tx store.Tx) error {
			return errors.Join(
				tx.Environments().Create(ctx, newEnvironment(other.tenant, "x")),
				tx.Agents().Update(ctx, other.agent),
				tx.Replicas().Beat(ctx, fleet.ServerReplica{ID: "x", StartedAt: time.Now(), BeatAt: time.Now()}),
				tx.Tokens().CreateAPIToken(ctx, fleet.APIToken{ID: fleet.NewTokenID(), Subject: "anna", Hash: make([]byte, 32), CreatedAt: time.Now()}))
		})
		if err != nil {
			return err
		}
		return tx.Environments().Create(ctx, newEnvironment(n.host.tenant, "x"))
	})
	if tries != 1 {
		t.Errorf("got %d tries, want 1", tries)
	}
}

func readAll(ctx context.Context, tx store.Tx, n *neighbours) (errs []error) {
	note := func(_ any, err error) { errs = append(errs, err) }
	note(tx.Settings().Get(ctx))
	note(tx.Tenants().Get(ctx, n.host.tenant))
	note(tx.Tenants().ByName(ctx, "host"))
	note(tx.Members().OfAllTenants(ctx, "anna", []string{"all"}))
	note(tx.Targets().OfAgentAllTenants(ctx, n.host.agent.ID))
	note(tx.Targets().GetAllTenants(ctx, n.host.agent.ID, []fleet.TargetID{"x"}))
	note(tx.Targets().StandingsAllTenants(ctx, []fleet.TargetID{"x"}))
	note(tx.Targets().OfGrantAllTenants(ctx, n.grant.ID))
	note(tx.Targets().CountByAgentAllTenants(ctx, []fleet.AgentID{n.host.agent.ID}))
	note(tx.Deployments().OfEnvironmentAllTenants(ctx, n.host.env.ID))
	note(tx.Repositories().GetAllTenants(ctx, n.host.repo))
	note(tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{n.host.agent.ID}))
	note(tx.Changes().Last(ctx))
	_, _, err := tx.Replies().Claim(ctx, store.Reply{Scope: "x", Key: "x", At: time.Now()})
	return append(errs, err)
}
