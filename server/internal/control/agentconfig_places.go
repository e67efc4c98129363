package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// What a file declares goes to exactly its agent: to an environment of its own, which names that agent
// alone. What a file no longer declares is moved to one that names nobody, which detaches it. Both, and
// the deployments, have a dot in their names: no user can give such a name, so nothing of a user's is
// ever in the way, and everybody sees what they are.

// placeOf is the environment of what the file of an agent declares.
func placeOf(agent string) string { return "agent." + agent }

// limboOf is the environment of what the file of an agent no longer declares.
func limboOf(agent string) string { return "released." + agent }

// nobody is no name of an agent. An environment that names none selects all.
const nobody = "(none)"

// declaredName is the name of what the file of an agent declares by a name.
func declaredName(agent, name string) string { return agent + "." + name }

// ensurePlace makes one of the two environments of an agent, unless it is there.
func (s *Service) ensurePlace(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name, agent string) error {
	_, err := tx.Environments().ByName(ctx, tenant, name)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return tx.Environments().Create(ctx, fleet.Environment{
		ID: fleet.NewEnvironmentID(), TenantID: tenant, Name: name, Agents: []string{agent}, Spec: 1, CreatedAt: s.cfg.Now(),
	})
}

// dropPlaces removes the environments of an agent that nothing is in any more.
func dropPlaces(ctx context.Context, tx store.Tx, tenant fleet.TenantID, agent string) error {
	for _, name := range []string{placeOf(agent), limboOf(agent)} {
		env, err := tx.Environments().ByName(ctx, tenant, name)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if env.Suspension.Active() {
			continue // somebody's word, which is kept
		}
		if err := tx.Environments().Delete(ctx, tenant, env.ID); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return nil
}

// checkPlace refuses an environment of a configuration where a user names one.
func checkPlace(field, name string) error {
	if !rollout.DeclaredInGit(name) {
		return nil
	}
	return fleet.Invalid(field, "%q belongs to the configuration of an agent in Git: only its file deploys there", name)
}

// notOfConfiguration is a ConflictError for an environment that follows from a configuration.
func notOfConfiguration(env fleet.Environment) error {
	if !rollout.DeclaredInGit(env.Name) {
		return nil
	}
	return fleet.Conflict("environment %q belongs to the configuration of an agent in Git, and goes with it", env.Name)
}

// notConfigured is a ConflictError for a repository that the configuration of an agent is in.
func notConfigured(ctx context.Context, tx store.Tx, repo fleet.Repository) error {
	configs, err := tx.AgentConfigs().OfRepository(ctx, repo.TenantID, repo.ID)
	if err != nil || len(configs) == 0 {
		return err
	}
	return fleet.Conflict("the configuration of agent %q is in repository %s: end that first, with kedge agent config unset %s",
		configs[0].AgentName, repo.URL, configs[0].AgentName)
}

// notDeclared is a ConflictError for a deployment that a file declares: it is changed there. doing is
// what was asked for.
func notDeclared(ctx context.Context, tx store.Tx, d fleet.Deployment, doing string) error {
	found, err := tx.Declarations().Of(ctx, d.TenantID, []fleet.DeploymentID{d.ID})
	if err != nil || len(found) == 0 {
		return err
	}
	by := found[0]
	where := fmt.Sprintf("%s of %s", by.File, by.RepoURL)
	switch {
	case by.ReleasedAt.IsZero():
		return fleet.Conflict("deployment %q is declared by %s and cannot be %s otherwise: change it there", d.Name, where, doing)
	case doing == "deleted":
		return nil
	default:
		return fleet.Conflict("deployment %q was declared by %s and was let go: declare it there again, or delete it and create one of your own", d.Name, where)
	}
}
