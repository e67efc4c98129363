package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// expandAgent gives a new agent the targets of every deployment whose environment selects it.
func (s *Service) expandAgent(ctx context.Context, tx store.Tx, agent fleet.Agent) error {
	environments, err := all(func(page store.Page) ([]fleet.Environment, error) {
		return tx.Environments().List(ctx, agent.TenantID, page)
	}, func(e fleet.Environment) string { return e.Name })
	if err != nil {
		return err
	}
	for _, env := range environments {
		if !env.Selects(agent) {
			continue
		}
		deployments, err := tx.Deployments().OfEnvironment(ctx, agent.TenantID, env.ID)
		if err != nil {
			return err
		}
		for _, d := range deployments {
			if !d.DeletedAt.IsZero() {
				continue
			}
			if err := createTarget(ctx, tx, d, agent); err != nil {
				return err
			}
		}
	}
	return nil
}

// expandDeployment makes the targets of a new deployment.
func (s *Service) expandDeployment(ctx context.Context, tx store.Tx, d fleet.Deployment, env fleet.Environment) error {
	agents, err := all(func(page store.Page) ([]fleet.Agent, error) {
		return tx.Agents().List(ctx, d.TenantID, page)
	}, func(a fleet.Agent) string { return a.Name })
	if err != nil {
		return err
	}
	for _, agent := range agents {
		if !env.Selects(agent) {
			continue
		}
		if err := createTarget(ctx, tx, d, agent); err != nil {
			return err
		}
	}
	return nil
}

func createTarget(ctx context.Context, tx store.Tx, d fleet.Deployment, agent fleet.Agent) error {
	t := fleet.Target{ID: fleet.NewTargetID(), TenantID: d.TenantID, DeploymentID: d.ID, AgentID: agent.ID}
	if err := tx.Targets().Create(ctx, t); err != nil {
		return err
	}
	if d.Rendered.Digest == "" {
		return nil
	}
	return tx.Targets().SetDesired(ctx, d.TenantID, t.ID, desire(d, fleet.Version{Epoch: epoch, Generation: 1}))
}

// desire is what every target of d shall be, at that version.
func desire(d fleet.Deployment, v fleet.Version) fleet.Desired {
	return fleet.Desired{
		Version: v, Digest: d.Rendered.Digest, Commit: d.Rendered.Commit, Namespace: d.Namespace, Policy: d.Policy,
	}
}

// next is the version after v.
func next(v fleet.Version) fleet.Version {
	return fleet.Version{Epoch: max(v.Epoch, epoch), Generation: v.Generation + 1}
}

// all reads a listing to its end, page by page.
func all[T any](list func(store.Page) ([]T, error), key func(T) string) ([]T, error) {
	const size = 500
	var out []T
	page := store.Page{Limit: size}
	for {
		items, err := list(page)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if len(items) < size {
			return out, nil
		}
		page.After = key(items[len(items)-1])
	}
}
