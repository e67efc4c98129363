package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// upgradeRuns implements the interface of engineupgrade with the use cases.
type upgradeRuns struct{ s *Service }

// AddRun adds a run in the name of the user who started the upgrade.
func (r upgradeRuns) AddRun(ctx context.Context, tx store.Tx, u fleet.EngineUpgrade, d fleet.Deployment, run fleet.SyncRun) (fleet.SyncRun, error) {
	return r.s.addRun(ctx, tx, auth.Principal{Name: u.By, Component: "server"}, d, run)
}

// resolveInstance finds what a request names, and refuses what cannot be upgraded or checked.
func resolveInstance(ctx context.Context, tx store.Tx, p auth.Principal, tenant fleet.TenantID, field string, asked EngineUpgradeInstance) (fleet.EngineUpgradeInstance, error) {
	none := fleet.EngineUpgradeInstance{}
	agent, err := tx.Agents().ByName(ctx, tenant, asked.Agent)
	if errors.Is(err, store.ErrNotFound) {
		return none, fleet.Invalid(field+".agent", "there is no agent %q", asked.Agent)
	}
	if err != nil {
		return none, err
	}
	if agent.EngineNamespace == "" {
		return none, fleet.Invalid(field+".agent", "agent %q applies by itself: name the agent that has Argo CD apply", agent.Name)
	}
	d, installer, err := resolveInstaller(ctx, tx, p, tenant, field+".deployment", asked.Deployment)
	if err != nil {
		return none, err
	}
	if err := checkSameCluster(ctx, tx, field+".deployment", d, installer, agent); err != nil {
		return none, err
	}
	canary, err := resolveCanary(ctx, tx, tenant, field+".canary", asked.Canary, agent)
	return fleet.EngineUpgradeInstance{
		AgentID: agent.ID, Agent: agent.Name, DeploymentID: d.ID, Deployment: d.Name, CanaryID: canary.ID, Canary: canary.Name,
		Phase: fleet.EngineInstancePending,
	}, err
}

func namedDeployment(ctx context.Context, tx store.Tx, tenant fleet.TenantID, field, name string) (fleet.Deployment, []fleet.Target, error) {
	d, err := tx.Deployments().ByName(ctx, tenant, name)
	if errors.Is(err, store.ErrNotFound) {
		return d, nil, fleet.Invalid(field, "there is no deployment %q", name)
	}
	if err != nil {
		return d, nil, err
	}
	all, err := tx.Targets().OfDeployment(ctx, tenant, d.ID)
	var attached []fleet.Target
	for _, t := range all {
		if rollout.Attached(t) {
			attached = append(attached, t)
		}
	}
	return d, attached, err
}

// resolveInstaller returns the deployment that installs an Argo CD, and its agent.
func resolveInstaller(ctx context.Context, tx store.Tx, p auth.Principal, tenant fleet.TenantID, field, name string) (fleet.Deployment, fleet.Agent, error) {
	d, targets, err := namedDeployment(ctx, tx, tenant, field, name)
	if err != nil {
		return d, fleet.Agent{}, err
	}
	if err := checkOwner(ctx, tx, p, deploymentResource(d), "upgraded"); err != nil {
		return d, fleet.Agent{}, err
	}
	switch {
	case !d.Policy.Manual:
		return d, fleet.Agent{}, fleet.Invalid(field, "deployment %q follows its source by itself: make it manual, so that only the upgrade moves it", name)
	case d.Policy.DryRun:
		return d, fleet.Agent{}, fleet.Invalid(field, "deployment %q is previewOnly: nothing is installed", name)
	case !d.Pin.Active():
		return d, fleet.Agent{}, fleet.Invalid(field, "deployment %q has not been synced yet, so there is no revision to return to: kedge sync %s", name, name)
	case len(targets) != 1:
		return d, fleet.Agent{}, fleet.Invalid(field, "deployment %q is on %d agents: an instance needs a deployment of its own, on one agent", name, len(targets))
	case targets[0].AgentTenant != tenant:
		return d, fleet.Agent{}, fleet.Invalid(field, "deployment %q is on an agent of another tenant", name)
	}
	agent, err := tx.Agents().Get(ctx, tenant, targets[0].AgentID)
	if err == nil && agent.EngineNamespace != "" {
		err = fleet.Invalid(field, "deployment %q is applied by an Argo CD: install Argo CD with an agent that applies by itself", name)
	}
	return d, agent, err
}

// checkSameCluster refuses an instance whose agents are known to be in different clusters.
func checkSameCluster(ctx context.Context, tx store.Tx, field string, d fleet.Deployment, installer, agent fleet.Agent) error {
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{installer.ID, agent.ID})
	if err != nil {
		return err
	}
	cluster := map[fleet.AgentID]string{}
	for _, c := range connections {
		if c.ClusterUID != "" && c.Leads() {
			cluster[c.AgentID] = c.ClusterUID
		}
	}
	a, b := cluster[installer.ID], cluster[agent.ID]
	if a != "" && b != "" && a != b {
		return fleet.Invalid(field, "deployment %q is in another cluster than agent %q, so it does not install the Argo CD of that agent", d.Name, agent.Name)
	}
	return nil
}

func resolveCanary(ctx context.Context, tx store.Tx, tenant fleet.TenantID, field, name string, agent fleet.Agent) (fleet.Deployment, error) {
	d, targets, err := namedDeployment(ctx, tx, tenant, field, name)
	if err != nil {
		return d, err
	}
	if d.Policy.DryRun {
		return d, fleet.Invalid(field, "deployment %q is previewOnly: Argo CD does not sync it", name)
	}
	for _, t := range targets {
		if t.AgentID == agent.ID {
			return d, nil
		}
	}
	return d, fleet.Invalid(field, "deployment %q is not on agent %q, so that Argo CD does not apply it", name, agent.Name)
}
