package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// dump reads everything of a tenant.
func dump(t *testing.T, s store.Store, w *world) map[string]any {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (map[string]any, error) {
		d := dumper{out: map[string]any{}}
		d.identity(ctx, tx, w)
		d.places(ctx, tx, w)
		d.work(ctx, tx, w)
		d.logs(ctx, tx, w)
		return d.out, errors.Join(d.errs...)
	})
}

type dumper struct {
	out  map[string]any
	errs []error
}

// keep is for the two results of a read.
func (d *dumper) keep(name string) func(value any, err error) {
	return func(value any, err error) {
		d.out[name] = value
		d.errs = append(d.errs, err)
	}
}

func (d *dumper) identity(ctx context.Context, tx store.Tx, w *world) {
	id := w.tenant.ID
	tenant, err := tx.Tenants().Get(ctx, id)
	d.keep("tenant")(tenant, ignoreNotFound(err))
	members, err := tx.Members().List(ctx, id, store.Whole())
	d.keep("members")(members, err)
	agents, err := tx.Agents().List(ctx, id, store.AgentFilter{})
	d.keep("agents")(agents, err)
	connected := true
	online, err := tx.Agents().List(ctx, id, store.AgentFilter{Connected: &connected})
	d.keep("connected agents")(online, err)
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{w.agent.ID})
	d.keep("connections")(connections, err)
	tokens, err := tx.Tokens().AgentTokens(ctx, id, w.agent.ID, store.Whole())
	d.keep("tokens")(tokens, err)
	apiTokens, err := tx.Tokens().APITokens(ctx, id, store.Whole())
	d.keep("API tokens")(apiTokens, err)
}

func (d *dumper) places(ctx context.Context, tx store.Tx, w *world) {
	id := w.tenant.ID
	environments, err := tx.Environments().List(ctx, id, store.Page{})
	d.keep("environments")(environments, err)
	grants, err := tx.Grants().Given(ctx, id, store.Whole())
	d.keep("grants")(grants, err)
	rules, err := tx.AccessRules().List(ctx, id, store.Page{})
	d.keep("access rules")(rules, err)
	credentials, err := tx.Credentials().List(ctx, id, store.Page{})
	d.keep("credentials")(credentials, err)
	repositories, err := tx.Repositories().List(ctx, id, store.RepositoryFilter{})
	d.keep("repositories")(repositories, err)
	configs, err := tx.AgentConfigs().All(ctx, id)
	d.keep("agent configurations")(configs, err)
	declarations, err := tx.Declarations().OfAgent(ctx, id, w.agent.Name)
	d.keep("declarations")(declarations, err)
	owners, err := tx.Owners().All(ctx, id)
	d.keep("owners")(owners, err)
	projects, err := tx.GitLabProjects().List(ctx, id, store.Whole())
	d.keep("GitLab projects")(projects, err)
}

func (d *dumper) work(ctx context.Context, tx store.Tx, w *world) {
	id := w.tenant.ID
	deployments, err := tx.Deployments().List(ctx, id, store.DeploymentFilter{})
	d.keep("deployments")(deployments, err)
	found, err := tx.Deployments().List(ctx, id, store.DeploymentFilter{Text: "shop"})
	d.keep("found deployments")(found, err)
	pending, err := tx.PendingSpecs().Of(ctx, id, []fleet.DeploymentID{w.deployment.ID})
	d.keep("pending specs")(pending, err)
	variants, err := tx.Deployments().Variants(ctx, id, w.deployment.ID)
	d.keep("variants")(variants, err)
	revisions, err := tx.Revisions().List(ctx, id, w.deployment.ID, store.Whole())
	d.keep("revisions")(revisions, err)
	targets, err := tx.Targets().OfDeployment(ctx, id, w.deployment.ID)
	d.keep("targets")(targets, err)
	objects, err := tx.Targets().Objects(ctx, id, w.target.ID)
	d.keep("objects")(objects, err)
	bundle, err := tx.Bundles().Get(ctx, id, w.bundle.Digest)
	d.keep("bundle")(bundle, ignoreNotFound(err))
	runs, err := tx.Runs().OfDeployment(ctx, id, w.deployment.ID, store.RunFilter{})
	d.keep("runs")(runs, err)
	runTargets, err := tx.Runs().Targets(ctx, id, w.run.ID)
	d.keep("run targets")(runTargets, err)
	upgrades, err := tx.EngineUpgrades().List(ctx, id, store.Whole())
	d.keep("engine upgrades")(upgrades, err)
}

func (d *dumper) logs(ctx context.Context, tx store.Tx, w *world) {
	id := w.tenant.ID
	operations, err := tx.Operations().List(ctx, id, store.OperationFilter{})
	d.keep("operations")(operations, err)
	audit, err := tx.Audit().List(ctx, id, store.AuditFilter{})
	d.keep("audit")(audit, err)
	events, err := tx.Events().List(ctx, id, store.EventFilter{})
	d.keep("events")(events, err)
	changes, err := tx.Changes().After(ctx, id, 0, 1000)
	d.keep("changes")(changes, err)
}
