package placement

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a placer on a real database with one tenant and one environment, which selects all agents.
type fixture struct {
	*Placer
	store  store.Store
	tenant fleet.Tenant
	env    fleet.Environment
}

func newFixture(t *testing.T, quota fleet.Quota) *fixture {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Path(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	clock := func() time.Time { return now }
	f := &fixture{Placer: New(Config{Now: clock}, rollout.New(rollout.Config{Now: clock}, st)), store: st}
	f.tenant = fleet.Tenant{ID: fleet.NewTenantID(), Name: "default", Quota: quota, CreatedAt: now}
	f.env = fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: f.tenant.ID, Name: "prod", CreatedAt: now}
	f.must(t, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Tenants().Create(ctx, f.tenant), tx.Environments().Create(ctx, f.env))
	})
	return f
}

// update runs one transaction.
func (f *fixture) update(t *testing.T, do func(context.Context, store.Tx) error) error {
	t.Helper()
	return f.store.Update(t.Context(), func(tx store.Tx) error { return do(t.Context(), tx) })
}

// must is update for changes that succeed.
func (f *fixture) must(t *testing.T, do func(context.Context, store.Tx) error) {
	t.Helper()
	if err := f.update(t, do); err != nil {
		t.Fatal(err)
	}
}

// agent stores an agent and does not place it.
func (f *fixture) agent(t *testing.T, name string, labels map[string]string) fleet.Agent {
	t.Helper()
	a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: f.tenant.ID, Name: name, Labels: labels, Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: now}
	f.must(t, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Create(ctx, a) })
	return a
}

// deployment stores a deployment in the environment and does not place it.
func (f *fixture) deployment(t *testing.T, name string, policy fleet.Policy) fleet.Deployment {
	t.Helper()
	repo := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: f.tenant.ID, URL: "https://git.example.com/" + name, SpecRevision: 1, CreatedAt: now}
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: f.tenant.ID, Name: name, RepositoryID: repo.ID, Source: fleet.Source{RepoURL: repo.URL, Path: "."},
		Environment: f.env.Name, EnvironmentTenant: f.tenant.ID, EnvironmentID: f.env.ID, Namespace: "default", Policy: policy, SpecRevision: 1, CreatedAt: now,
	}
	f.must(t, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.Repositories().Create(ctx, repo), tx.Deployments().Create(ctx, d))
	})
	return d
}

// sent makes every target of a deployment one that its agent knows.
func (f *fixture) sent(t *testing.T, d fleet.Deployment) {
	t.Helper()
	for _, target := range f.targets(t, d) {
		f.must(t, func(ctx context.Context, tx store.Tx) error {
			return tx.Targets().SetDesired(ctx, d.TenantID, target.ID, fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 1}, Namespace: d.Namespace, Policy: d.Policy})
		})
	}
}

func (f *fixture) targets(t *testing.T, d fleet.Deployment) (out []fleet.Target) {
	t.Helper()
	err := f.store.View(t.Context(), func(tx store.Tx) (err error) {
		out, err = tx.Targets().OfDeployment(t.Context(), d.TenantID, d.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// states returns the state of the target of d on each agent.
func (f *fixture) states(t *testing.T, d fleet.Deployment) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, target := range f.targets(t, d) {
		switch {
		case target.Desired.Tombstone:
			out[target.AgentName] = "tombstone"
		case target.Desired.Detached && target.DetachedAt.Equal(now):
			out[target.AgentName] = "detached"
		case !HasLeft(target):
			out[target.AgentName] = "attached"
		default:
			out[target.AgentName] = "unclear"
		}
	}
	return out
}

// selects changes the environment.
func (f *fixture) selects(t *testing.T, agents []string, labels map[string]string) {
	t.Helper()
	f.env.Agents, f.env.MatchLabels = agents, labels
	f.must(t, func(ctx context.Context, tx store.Tx) error { return tx.Environments().Update(ctx, f.env) })
}

func attached(names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = "attached"
	}
	return out
}
