package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Agents lists matching agents, sorted by name.
func (s *Service) Agents(ctx context.Context, p auth.Principal, tenant string, f store.AgentFilter) ([]AgentView, error) {
	var out []AgentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		agents, err := tx.Agents().List(ctx, t.ID, f)
		if err != nil {
			return err
		}
		out, err = s.viewAgents(ctx, tx, agents)
		return err
	})
	return out, err
}

// Agent returns one agent by name.
func (s *Service) Agent(ctx context.Context, p auth.Principal, tenant, name string) (AgentView, error) {
	var out AgentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		views, err := s.viewAgents(ctx, tx, []fleet.Agent{a})
		if err == nil {
			out = views[0]
		}
		return err
	})
	return out, err
}

// viewAgents returns the views of agents, in the given order.
func (s *Service) viewAgents(ctx context.Context, tx store.Tx, agents []fleet.Agent) ([]AgentView, error) {
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
	warnings, err := configWarnings(ctx, tx, agents, ids)
	if err != nil {
		return nil, err
	}
	byAgent := rollout.GroupConnections(connections)
	out := make([]AgentView, 0, len(agents))
	for _, a := range agents {
		v := s.viewAgent(a, byAgent[a.ID], counts[a.ID])
		operations, err := shownOperations(ctx, tx, a.TenantID, string(a.ID))
		if err != nil {
			return nil, err
		}
		for _, o := range operations {
			if o.State == fleet.OperationFailed { // a rotation of the token is the only operation of an agent
				v.warn(fleet.ReasonTokenRotationFailed, "operation %s (%s) failed: %s", o.ID, o.Action, o.Message)
			}
		}
		if w := warnings[a.ID]; !w.IsZero() {
			v.Warnings, v.ConfigWarning = append(v.Warnings, w), w
		}
		out = append(out, v)
	}
	return out, nil
}

func (s *Service) viewAgent(a fleet.Agent, connections []fleet.Connection, targets int) AgentView {
	v := AgentView{Agent: a, Connections: connections, Targets: targets}
	clusters := map[string]bool{}
	for _, c := range connections {
		seen := c.LastSeenAt
		v.Connected = v.Connected || c.Leads()
		if c.Connected() {
			seen = s.cfg.Now() // within its lease: the gateway closes connections that are silent for longer
			if c.Version != s.cfg.Version && c.Replica != polling.Replica {
				v.warn(fleet.ReasonVersionSkew, "replica %s runs version %s, the server runs %s", c.Replica, c.Version, s.cfg.Version)
			}
			if why := fleet.EngineMismatch(c, a); why != "" && c.Replica != polling.Replica {
				v.warn(fleet.ReasonEngineMismatch, "%s", why)
			}
			if c.ClusterUID != "" {
				clusters[c.ClusterUID] = true
			}
		}
		if seen.After(v.LastSeenAt) {
			v.LastSeenAt = seen
		}
	}
	if len(clusters) > 1 {
		v.warn(fleet.ReasonSeveralClusters, "replicas of this agent connect from different clusters: enroll one agent per cluster")
	}
	return v
}

func (v *AgentView) warn(reason fleet.Reason, format string, args ...any) {
	v.Warnings = append(v.Warnings, fleet.Cause{Reason: reason, Message: fmt.Sprintf(format, args...)})
}
