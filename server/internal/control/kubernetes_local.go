package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// localEnvironment is the name of the environment with the agent of the cluster that holds the Kubernetes resources.
const localEnvironment = "in-cluster"

// LocalEnvironment returns the name of the environment with the agent of a tenant that is connected from a cluster, which
// is identified by the UID of its namespace kube-system. It creates the environment if it does not exist. The environment
// keeps its agent while that agent exists: another agent of the same cluster does not replace it.
func (s *Service) LocalEnvironment(ctx context.Context, p auth.Principal, tenant, cluster string) (string, error) {
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		agents, err := agentsIn(ctx, tx, t.ID, cluster)
		if err != nil {
			return err
		}
		env, err := tx.Environments().ByName(ctx, t.ID, localEnvironment)
		if errors.Is(err, store.ErrNotFound) {
			return s.createLocalEnvironment(ctx, tx, p, t, agents[0])
		}
		if err != nil {
			return err
		}
		if err := checkLocal(ctx, tx, env); err != nil {
			return err
		}
		for _, a := range agents {
			if env.Selects(a) {
				return nil
			}
		}
		env.Agents = []string{agents[0].Name}
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
		if err := s.placer.PlaceEnvironment(ctx, tx, env); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, environmentEvent("environment.update", env, selectorText(env)))
	})
	return localEnvironment, err
}

// createLocalEnvironment creates the environment for the namespace of its tenant, so that no other API changes it.
func (s *Service) createLocalEnvironment(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, a fleet.Agent) error {
	namespace, ok, err := ownerOf(ctx, tx, resource{t.ID, fleet.OwnedTenant, string(t.ID), t.Name})
	if err != nil {
		return err
	}
	env := fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: t.ID, Name: localEnvironment, Agents: []string{a.Name},
		MatchLabels: map[string]string{}, SpecRevision: 1, CreatedAt: s.cfg.Now(),
	}
	if err := tx.Environments().Create(ctx, env); err != nil {
		return err
	}
	if err := s.audit(ctx, tx, p, environmentEvent("environment.create", env, selectorText(env))); err != nil || !ok {
		return err
	}
	return tx.Owners().Put(ctx, fleet.Owned{TenantID: t.ID, Kind: fleet.OwnedEnvironment, ID: string(env.ID), Owner: namespace.Owner})
}

// checkLocal refuses an environment that has the name but was created by someone else.
func checkLocal(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	owned, ok, err := ownerOf(ctx, tx, environmentResource(env))
	if err != nil {
		return err
	}
	if !ok || owned.Owner.Namespace != "" {
		return ownerConflict(fleet.ReasonNameInUse,
			"environment %q is not the one that deployments without a destination use: give it another name, or set spec.destination", env.Name)
	}
	return nil
}

// agentsIn returns the agents of a tenant that are, or were last, connected from a cluster.
func agentsIn(ctx context.Context, tx store.Tx, tenant fleet.TenantID, cluster string) ([]fleet.Agent, error) {
	agents, err := listing.Agents(ctx, tx, tenant, store.AgentFilter{})
	if err != nil {
		return nil, err
	}
	ids := make([]fleet.AgentID, len(agents))
	for i, a := range agents {
		ids[i] = a.ID
	}
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, ids)
	if err != nil {
		return nil, err
	}
	in := map[fleet.AgentID]bool{}
	for _, c := range connections {
		in[c.AgentID] = in[c.AgentID] || (c.ClusterUID == cluster && cluster != "")
	}
	var out []fleet.Agent
	for _, a := range agents {
		if in[a.ID] {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, ownerConflict(fleet.ReasonNoAgentInCluster,
			"no agent of this tenant has connected from the cluster that holds this resource: enroll one there, or set spec.destination")
	}
	return out, nil
}
