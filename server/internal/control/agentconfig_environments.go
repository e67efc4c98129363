package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Declared deployments go to exactly their agent: to an environment that contains only that agent. Released
// ones move to an environment without agents, which detaches them. Both environments, and the deployments, have
// a dot in their names: users cannot create such names, so there are no conflicts, and everyone sees what they
// are.

// environmentOfAgent returns the environment for declared deployments of an agent.
func environmentOfAgent(agent string) string { return "agent." + agent }

// environmentOfReleased returns the environment for released deployments of an agent.
func environmentOfReleased(agent string) string { return "released." + agent }

// noAgent is not a valid agent name. An environment without names selects all agents.
const noAgent = "(none)"

// declaredName returns the name of a deployment that a file declares.
func declaredName(agent, name string) string { return agent + "." + name }

// ensureAgentEnvironment creates one of the two environments of an agent, unless it exists.
func (s *Service) ensureAgentEnvironment(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name, agent string) error {
	_, err := tx.Environments().ByName(ctx, tenant, name)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return tx.Environments().Create(ctx, fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: name, Agents: []string{agent}, SpecRevision: 1, CreatedAt: s.cfg.Now(),
	})
}

// dropAgentEnvironments removes unused environments of an agent.
func dropAgentEnvironments(ctx context.Context, tx store.Tx, tenant fleet.TenantID, agent string) error {
	for _, name := range []string{environmentOfAgent(agent), environmentOfReleased(agent)} {
		env, err := tx.Environments().ByName(ctx, tenant, name)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if env.Suspension.Active() {
			continue // suspended by a user, so it is kept
		}
		if err := tx.Environments().Delete(ctx, tenant, env.ID); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return nil
}

// checkUserEnvironment refuses an environment of a configuration in a request of a user.
func checkUserEnvironment(field, name string) error {
	if !rollout.DeclaredInGit(name) {
		return nil
	}
	return fleet.Invalid(field, "%q belongs to the configuration of an agent in Git: only its file deploys there", name)
}

// notOfConfiguration returns a ConflictError for an environment of a configuration.
func notOfConfiguration(env fleet.Environment) error {
	if !rollout.DeclaredInGit(env.Name) {
		return nil
	}
	return fleet.Conflict("environment %q belongs to the configuration of an agent in Git and is deleted with it", env.Name)
}

// notConfigured returns a ConflictError for a repository with the configuration of an agent.
func notConfigured(ctx context.Context, tx store.Tx, repo fleet.Repository) error {
	configs, err := tx.AgentConfigs().OfRepository(ctx, repo.TenantID, repo.ID)
	if err != nil || len(configs) == 0 {
		return err
	}
	return fleet.Conflict("the configuration of agent %q is in repository %s: end it first with kedge agent config unset %s",
		configs[0].AgentName, repo.URL, configs[0].AgentName)
}

// notDeclared returns a ConflictError for a declared deployment, which can only be changed in its file. doing
// is the requested action.
func notDeclared(ctx context.Context, tx store.Tx, d fleet.Deployment, doing string) error {
	found, err := tx.Declarations().Of(ctx, d.TenantID, []fleet.DeploymentID{d.ID})
	if err != nil || len(found) == 0 {
		return err
	}
	by := found[0]
	where := fmt.Sprintf("%s of %s", by.File, by.RepoURL)
	switch {
	case by.ReleasedAt.IsZero():
		return fleet.Conflict("deployment %q is declared by %s and can only be %s there: change the file", d.Name, where, doing)
	case doing == "deleted":
		return nil
	default:
		return fleet.Conflict("deployment %q was declared by %s and is released: declare it there again, or delete it and create a new one", d.Name, where)
	}
}
