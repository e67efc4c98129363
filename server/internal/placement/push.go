package placement

import (
	"cmp"
	"context"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// instance is an engine instance with what decides whether it is chosen.
type instance struct {
	agent        fleet.Agent
	connected    bool
	load         int // targets and push environments
	environments int
	sameCluster  bool // has an environment with the API server
}

// ChooseInstance returns the engine instance of a tenant for a push environment with an API server: a connected one, if possible
// that of another environment of the same cluster, because only one agent hands objects over; with the least load otherwise. It
// returns "" if there is none.
func (p *Placer) ChooseInstance(ctx context.Context, tx store.Tx, tenant fleet.TenantID, apiURL string) (fleet.AgentID, error) {
	candidates, err := instances(ctx, tx, tenant, apiURL)
	if err != nil || len(candidates) == 0 {
		return "", err
	}
	return slices.MinFunc(candidates, compareInstances).agent.ID, nil
}

func compareInstances(a, b instance) int {
	yesFirst := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	return cmp.Or(yesFirst(a.connected, b.connected), yesFirst(a.sameCluster, b.sameCluster), cmp.Compare(a.load, b.load), cmp.Compare(a.agent.Name, b.agent.Name))
}

// instances returns the engine instances of a tenant that may serve one more push environment.
func instances(ctx context.Context, tx store.Tx, tenant fleet.TenantID, apiURL string) ([]instance, error) {
	agents, err := listing.Agents(ctx, tx, tenant, store.AgentFilter{})
	if err != nil {
		return nil, err
	}
	agents = slices.DeleteFunc(agents, func(a fleet.Agent) bool { return !a.Instance || a.Draining || a.Uninstalling })
	if len(agents) == 0 {
		return nil, nil
	}
	ids := make([]fleet.AgentID, 0, len(agents))
	for _, a := range agents {
		ids = append(ids, a.ID)
	}
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, ids)
	if err != nil {
		return nil, err
	}
	counts, err := tx.Targets().CountByAgentAllTenants(ctx, ids)
	if err != nil {
		return nil, err
	}
	environments, err := listing.Environments(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]instance, 0, len(agents))
	for _, a := range agents {
		i := instance{agent: a, connected: slices.ContainsFunc(connections, func(c fleet.Connection) bool { return c.AgentID == a.ID && c.Leads() })}
		for _, e := range environments {
			if e.Push != nil && e.Push.Instance == a.ID {
				i.environments++
				i.sameCluster = i.sameCluster || e.Push.APIURL == apiURL
			}
		}
		i.load = counts[a.ID] + i.environments
		out = append(out, i)
	}
	return slices.DeleteFunc(out, func(i instance) bool { return i.environments >= fleet.MaxPushEnvironments }), nil
}

// PlacePush places the push environments of a tenant that wait for an engine instance, and moves those of draining ones.
func (p *Placer) PlacePush(ctx context.Context, tx store.Tx, tenant fleet.TenantID) error {
	environments, err := listing.Environments(ctx, tx, tenant)
	if err != nil {
		return err
	}
	for _, env := range environments {
		if env.Push == nil {
			continue
		}
		if env.Push.Instance != "" || env.Push.MovingFrom != "" {
			if err := p.move(ctx, tx, env); err != nil {
				return err
			}
			continue
		}
		if env.Push.Instance, err = p.ChooseInstance(ctx, tx, tenant, env.Push.APIURL); err != nil || env.Push.Instance == "" {
			return err
		}
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
		if err := p.PlaceEnvironment(ctx, tx, env); err != nil {
			return err
		}
	}
	return nil
}
