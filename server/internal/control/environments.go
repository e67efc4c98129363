package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxAgentNames limits the agent names of an environment; labels have no such limit.
const maxAgentNames = 1000

// CreateEnvironment creates an environment.
func (s *Service) CreateEnvironment(ctx context.Context, p auth.Principal, tenant string, req CreateEnvironment) (EnvironmentView, error) {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return EnvironmentView{}, err
	}
	var out EnvironmentView
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		env := fleet.Environment{
			ID: fleet.NewEnvironmentID(), TenantID: t.ID, Name: req.Name, Agents: sorted(req.Agents),
			MatchLabels: fleet.CloneLabels(req.MatchLabels), SpecRevision: 1, CreatedAt: s.cfg.Now(),
		}
		if err := s.fillEnvironment(ctx, tx, t, &env, req.Push); err != nil {
			return err
		}
		if err := quota.Check(ctx, tx, t, quota.Environments, 1); err != nil {
			return err
		}
		if err := tx.Environments().Create(ctx, env); err != nil {
			return fmt.Errorf("environment %q: %w", req.Name, err)
		}
		if err := own(ctx, tx, p, environmentResource(env)); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, p, environmentEvent("environment.create", env, selectorText(env))); err != nil {
			return err
		}
		out, err = viewEnvironment(ctx, tx, t.ID, env.ID)
		return err
	})
	return out, err
}

func environmentEvent(action string, e fleet.Environment, detail string) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: e.TenantID, Action: action, Kind: "environment", Name: e.Name, ID: string(e.ID), Detail: detail}
}

func selectorText(e fleet.Environment) string {
	if e.Push != nil {
		return "API server: " + e.Push.APIURL + "; namespaces: " + listWords(e.Push.Namespaces, "all")
	}
	return "agents: " + listWords(e.Agents, "none by name") + "; labels: " + labelWords(e.MatchLabels)
}

// fillEnvironment checks the selector of a new environment, or stores the credential of a push environment and places it.
func (s *Service) fillEnvironment(ctx context.Context, tx store.Tx, t fleet.Tenant, env *fleet.Environment, push *PushSpec) error {
	if push == nil {
		return checkSelector(ctx, tx, t, *env, nil)
	}
	if len(env.Agents) > 0 || len(env.MatchLabels) > 0 || env.Name == fleet.DefaultEnvironment {
		return fleet.Invalid("push", "a push environment does not select agents")
	}
	return s.createPush(ctx, tx, env, *push)
}

// checkSelector refuses an environment without a selector, and new names of agents that do not exist.
func checkSelector(ctx context.Context, tx store.Tx, t fleet.Tenant, env fleet.Environment, before []string) error {
	if len(env.Agents) == 0 && len(env.MatchLabels) == 0 && env.Name != fleet.DefaultEnvironment {
		return fleet.Invalid("agents", "set agents or matchLabels; the environment %q selects every agent", fleet.DefaultEnvironment)
	}
	if len(env.Agents) > maxAgentNames {
		return fleet.Invalid("agents", "at most %d agent names are allowed: use matchLabels", maxAgentNames)
	}
	if len(env.MatchLabels) > maxLabels {
		return fleet.Invalid("matchLabels", "at most %d labels are allowed", maxLabels)
	}
	for _, name := range env.Agents {
		if slices.Contains(before, name) {
			continue
		}
		_, err := tx.Agents().ByName(ctx, t.ID, name)
		if errors.Is(err, store.ErrNotFound) {
			return fleet.Invalid("agents", "there is no agent %q in tenant %q: enroll it first", name, t.Name)
		}
		if err != nil {
			return err
		}
	}
	return fleet.CheckLabels("matchLabels", env.MatchLabels)
}

// Environments lists environments, sorted by name.
func (s *Service) Environments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]EnvironmentView, error) {
	var out []EnvironmentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		environments, err := tx.Environments().List(ctx, t.ID, page)
		if err != nil {
			return err
		}
		agents, err := listing.Agents(ctx, tx, t.ID, store.AgentFilter{})
		if err != nil {
			return err
		}
		for _, env := range environments {
			view, err := viewWith(ctx, tx, env, agents)
			if err != nil {
				return err
			}
			out = append(out, view)
		}
		return nil
	})
	return out, err
}

// Environment returns one environment by name.
func (s *Service) Environment(ctx context.Context, p auth.Principal, tenant, name string) (EnvironmentView, error) {
	var out EnvironmentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		env, err := environmentByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		out, err = viewEnvironment(ctx, tx, t.ID, env.ID)
		return err
	})
	return out, err
}

func environmentByName(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name string) (fleet.Environment, error) {
	env, err := tx.Environments().ByName(ctx, tenant, name)
	if err != nil {
		return fleet.Environment{}, fmt.Errorf("environment %q: %w", name, err)
	}
	return env, nil
}

// viewEnvironment reads an environment with the agents that it currently selects.
func viewEnvironment(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.EnvironmentID) (EnvironmentView, error) {
	env, err := tx.Environments().Get(ctx, tenant, id)
	if err != nil {
		return EnvironmentView{}, err
	}
	agents, err := listing.Agents(ctx, tx, tenant, store.AgentFilter{})
	if err != nil {
		return EnvironmentView{}, err
	}
	return viewWith(ctx, tx, env, agents)
}

func viewWith(ctx context.Context, tx store.Tx, env fleet.Environment, agents []fleet.Agent) (EnvironmentView, error) {
	v := EnvironmentView{Environment: env}
	for _, a := range agents {
		if env.Selects(a) {
			v.Agents = append(v.Agents, a.Name)
		}
	}
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	v.Deployments = len(deployments)
	if err == nil && env.Push != nil {
		err = viewPush(ctx, tx, &v, agents)
	}
	return v, err
}

// UpdateEnvironment changes the agents of an environment: targets are created, detached, and attached again
// accordingly.
func (s *Service) UpdateEnvironment(
	ctx context.Context, p auth.Principal, tenant, name string, req UpdateEnvironment, match Match,
) (EnvironmentView, error) {
	return s.editEnvironment(ctx, p, tenant, name, match, func(tx store.Tx, t fleet.Tenant, env fleet.Environment) error {
		if err := notOfConfiguration(env); err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, environmentResource(env), "changed"); err != nil {
			return err
		}
		if env.Push != nil || req.Push != nil {
			return s.updatePush(ctx, tx, p, env, req)
		}
		was := env
		if req.Agents != nil {
			env.Agents = sorted(*req.Agents)
		}
		if req.MatchLabels != nil {
			env.MatchLabels = fleet.CloneLabels(*req.MatchLabels)
		}
		if slices.Equal(was.Agents, env.Agents) && maps.Equal(was.MatchLabels, env.MatchLabels) {
			return observe(ctx, tx, p, environmentResource(env))
		}
		if err := checkGeneration(ctx, tx, p, environmentResource(env)); err != nil {
			return err
		}
		if err := checkSelector(ctx, tx, t, env, was.Agents); err != nil {
			return err
		}
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
		if err := s.placer.PlaceEnvironment(ctx, tx, env); err != nil {
			return err
		}
		if err := observe(ctx, tx, p, environmentResource(env)); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, environmentEvent("environment.update", env, selectorText(env)))
	})
}

// editEnvironment runs change on an environment that p may change, and returns the result.
func (s *Service) editEnvironment(
	ctx context.Context, p auth.Principal, tenant, name string, match Match,
	change func(tx store.Tx, t fleet.Tenant, env fleet.Environment) error,
) (EnvironmentView, error) {
	var out EnvironmentView
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		env, err := environmentByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		if err := match.check(string(env.ID), env.SpecRevision); err != nil {
			return err
		}
		if err := change(tx, t, env); err != nil {
			return err
		}
		out, err = viewEnvironment(ctx, tx, t.ID, env.ID)
		return err
	})
	return out, err
}
