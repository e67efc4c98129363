package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxNamespaces bounds the list of a namespaced agent: each costs watches.
const maxNamespaces = 200

// EnrollAgent creates an agent with its first token and gives it the targets of every deployment
// whose environment selects it.
func (s *Service) EnrollAgent(ctx context.Context, p auth.Principal, tenant string, req EnrollAgent) (Enrollment, error) {
	if err := checkEnroll(req); err != nil {
		return Enrollment{}, err
	}
	out := Enrollment{Token: auth.NewToken(auth.AgentTokenPrefix)}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out.Agent = newAgent(t.ID, req, s.cfg.Now())
		if err := tx.Agents().Create(ctx, out.Agent); err != nil {
			return fmt.Errorf("agent %q: %w", req.Name, err)
		}
		if err := tx.Tokens().CreateAgentToken(ctx, fleet.AgentToken{
			ID: fleet.NewTokenID(), TenantID: t.ID, AgentID: out.Agent.ID, Hash: auth.Hash(out.Token), CreatedAt: s.cfg.Now(),
		}); err != nil {
			return err
		}
		if err := s.expandAgent(ctx, tx, out.Agent); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: t.ID, Type: fleet.EventNormal, Reason: "AgentEnrolled", Agent: req.Name,
			Message: fmt.Sprintf("agent %q was enrolled by %s", req.Name, p.Name),
		})
	})
	if err != nil {
		return Enrollment{}, err
	}
	return out, nil
}

// DeleteAgent forgets an agent with its tokens, connections and targets. No tombstone is made, so no
// object in any cluster is deleted: an agent that is gone was perhaps lost, and absence is never
// deletion.
func (s *Service) DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := tx.Agents().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("agent %q: %w", name, err)
		}
		targets, err := tx.Targets().OfAgent(ctx, t.ID, a.ID)
		if err != nil {
			return err
		}
		if err := tx.Agents().Delete(ctx, t.ID, a.ID); err != nil {
			return err
		}
		for _, target := range targets {
			if err := s.dropIfEmpty(ctx, tx, t.ID, target.DeploymentID); err != nil {
				return err
			}
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: t.ID, Type: fleet.EventNormal, Reason: "AgentDeleted", Agent: name,
			Message: fmt.Sprintf("agent %q was deleted by %s; what it has deployed stays in its cluster", name, p.Name),
		})
	})
}

// dropIfEmpty removes a deleted deployment that waited for nobody but an agent that is gone now.
func (s *Service) dropIfEmpty(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.DeploymentID) error {
	d, err := tx.Deployments().Get(ctx, tenant, id)
	if err != nil || d.DeletedAt.IsZero() {
		return err
	}
	left, err := tx.Targets().OfDeployment(ctx, tenant, id)
	if err != nil || len(left) > 0 {
		return err
	}
	return tx.Deployments().Remove(ctx, tenant, id)
}

func checkEnroll(req EnrollAgent) error {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return err
	}
	if err := fleet.CheckLabels("labels", req.Labels); err != nil {
		return err
	}
	if len(req.Namespaces) > maxNamespaces {
		return fleet.Invalid("namespaces", "at most %d namespaces can be listed", maxNamespaces)
	}
	for _, ns := range req.Namespaces {
		if err := fleet.CheckName("namespaces", ns); err != nil {
			return err
		}
	}
	return nil
}

func newAgent(tenant fleet.TenantID, req EnrollAgent, now time.Time) fleet.Agent {
	namespaces := slices.Compact(slices.Sorted(slices.Values(req.Namespaces)))
	scope := fleet.ScopeCluster
	if len(namespaces) > 0 {
		scope = fleet.ScopeNamespaced
	}
	return fleet.Agent{
		ID: fleet.NewAgentID(), TenantID: tenant, Name: req.Name, Labels: fleet.CloneLabels(req.Labels),
		Scope: scope, Namespaces: namespaces, CreatedAt: now,
	}
}

// Agents lists agents in the order of their names.
func (s *Service) Agents(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]AgentView, error) {
	var out []AgentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		agents, err := tx.Agents().List(ctx, t.ID, page)
		if err != nil {
			return err
		}
		connections, err := tx.Connections().List(ctx, t.ID)
		if err != nil {
			return err
		}
		counts, err := tx.Targets().CountByAgent(ctx, t.ID)
		if err != nil {
			return err
		}
		byAgent := groupConnections(connections)
		for _, a := range agents {
			out = append(out, s.viewAgent(a, byAgent[a.ID], counts[a.ID]))
		}
		return nil
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
		a, err := tx.Agents().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("agent %q: %w", name, err)
		}
		connections, err := tx.Connections().OfAgent(ctx, t.ID, a.ID)
		if err != nil {
			return err
		}
		targets, err := tx.Targets().OfAgent(ctx, t.ID, a.ID)
		if err != nil {
			return err
		}
		out = s.viewAgent(a, connections, len(targets))
		return nil
	})
	return out, err
}

func (s *Service) viewAgent(a fleet.Agent, connections []fleet.Connection, targets int) AgentView {
	v := AgentView{Agent: a, Connections: connections, Targets: targets}
	clusters := map[string]bool{}
	for _, c := range connections {
		seen := c.LastSeenAt
		if c.Connected() {
			v.Connected = true
			seen = s.cfg.Now() // within its lease: the gateway closes what is silent for longer
			if c.Version != s.cfg.Version {
				v.Warnings = append(v.Warnings, fmt.Sprintf("replica %s runs version %s, the server runs %s", c.Replica, c.Version, s.cfg.Version))
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
		v.Warnings = append(v.Warnings, "replicas of this agent connect from different clusters: enrol one agent per cluster")
	}
	return v
}

func groupConnections(connections []fleet.Connection) map[fleet.AgentID][]fleet.Connection {
	out := map[fleet.AgentID][]fleet.Connection{}
	for _, c := range connections {
		out[c.AgentID] = append(out[c.AgentID], c)
	}
	return out
}

// tell appends an event, now.
func (s *Service) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = s.cfg.Now()
	return tx.Events().Append(ctx, e)
}

// Events lists the newest events that match, oldest first.
func (s *Service) Events(ctx context.Context, p auth.Principal, tenant string, f store.EventFilter) ([]fleet.Event, error) {
	var out []fleet.Event
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Events().List(ctx, t.ID, f)
		return err
	})
	return out, err
}
