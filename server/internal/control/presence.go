package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/polling"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// openConnections has the open connections of this process, so that it can write them again. The zero value is
// ready.
type openConnections struct {
	// telling serializes the end of a session and a report that it is still open.
	telling sync.RWMutex

	mu   sync.Mutex
	open map[fleet.SessionID]fleet.Connection
}

func (p *openConnections) add(c fleet.Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[fleet.SessionID]fleet.Connection{}
	}
	p.open[c.SessionID] = c
}

func (p *openConnections) remove(id fleet.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
}

func (p *openConnections) all() []fleet.Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.open))
}

// AgentConnected records the hello message of an agent replica.
func (s *Service) AgentConnected(ctx context.Context, c fleet.Connection) error {
	c.Server = s.member.ID()
	err := s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, c.TenantID, c.AgentID)
		if err != nil {
			return err
		}
		if err := tx.Connections().Put(ctx, c); err != nil {
			return err
		}
		if err := s.placer.VerifyCluster(ctx, tx, agent, c.ClusterUID); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: c.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonAgentConnected, Agent: agent.Name,
			Message: fmt.Sprintf("replica %s connected as %s (version %s, Kubernetes %s)", c.Replica, c.Role(), c.Version, c.KubeVersion),
		})
	})
	if err == nil {
		s.connections.add(c)
	}
	return err
}

// AgentDisconnected records the end of a session.
func (s *Service) AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error {
	s.connections.telling.RLock()
	defer s.connections.telling.RUnlock()
	s.connections.remove(c.SessionID)
	return s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, c.TenantID, c.AgentID)
		if errors.Is(err, store.ErrNotFound) {
			return nil // deleted concurrently, with its connections
		}
		if err != nil {
			return err
		}
		closed, err := tx.Connections().Close(ctx, c.TenantID, c.SessionID, lastSeen, s.cfg.Now())
		if err != nil || !closed {
			return err // a newer session of this replica exists
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: c.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonAgentDisconnected, Agent: agent.Name,
			Message: s.leftMessage(c),
		})
	})
}

func (s *Service) leftMessage(c fleet.Connection) string {
	if c.Replica == polling.Replica {
		return fmt.Sprintf("has not polled for %v", s.polling.Lease())
	}
	return fmt.Sprintf("replica %s, which was %s, disconnected", c.Replica, c.Role())
}

// reopenConnections opens the rows of this server's connections again, unless a newer session has replaced
// them: another server closed them because this one was silent.
func (s *Service) reopenConnections(ctx context.Context) error {
	s.connections.telling.Lock()
	defer s.connections.telling.Unlock()
	for chunk := range slices.Chunk(s.connections.all(), 500) {
		byAgent := map[fleet.AgentID]bool{}
		for _, c := range chunk {
			byAgent[c.AgentID] = true
		}
		err := s.store.Update(ctx, func(tx store.Tx) error {
			rows, err := tx.Connections().OfAgentsAllTenants(ctx, slices.Collect(maps.Keys(byAgent)))
			if err != nil {
				return err
			}
			closed := map[fleet.SessionID]bool{}
			for _, row := range rows {
				closed[row.SessionID] = !row.Connected()
			}
			for _, c := range chunk {
				if !closed[c.SessionID] {
					continue
				}
				c.LastSeenAt = s.cfg.Now()
				if err := tx.Connections().Put(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reopening connections: %w", err)
		}
	}
	return nil
}

// ReplicaID names this server among those that share its database.
func (s *Service) ReplicaID() string { return s.member.ID() }

// AgentServers returns the other servers that an agent is connected to. Those with a standby come first, because the leader has
// more to do.
func (s *Service) AgentServers(ctx context.Context, agent fleet.AgentID) ([]fleet.ServerReplica, error) {
	if !s.cfg.Shared {
		return nil, nil
	}
	var rows []fleet.Connection
	var servers []fleet.ServerReplica
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if rows, err = tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{agent}); err != nil {
			return err
		}
		servers, err = tx.Replicas().List(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("finding the servers of agent %q: %w", agent, err)
	}
	var first, last []fleet.ServerReplica
	for _, server := range servers {
		held := slices.DeleteFunc(slices.Clone(rows), func(c fleet.Connection) bool {
			return c.Server != server.ID || !c.Connected() || c.Replica == polling.Replica
		})
		switch {
		case len(held) == 0 || server.ID == s.member.ID():
		case slices.ContainsFunc(held, func(c fleet.Connection) bool { return c.Standby }):
			first = append(first, server)
		default:
			last = append(last, server)
		}
	}
	return append(first, last...), nil
}

// pollerCame records that an agent polls. There is an event only if it did not poll another server before.
func (s *Service) pollerCame(ctx context.Context, c fleet.Connection) error {
	c.Server = s.member.ID()
	err := s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, c.TenantID, c.AgentID)
		if err != nil {
			return err
		}
		rows, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{c.AgentID})
		if err != nil {
			return err
		}
		if err := tx.Connections().Put(ctx, c); err != nil {
			return err
		}
		if err := s.placer.VerifyCluster(ctx, tx, agent, c.ClusterUID); err != nil {
			return err
		}
		for _, row := range rows {
			if row.Replica == polling.Replica && row.Connected() {
				return nil
			}
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: c.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonAgentConnected, Agent: agent.Name, Message: "polls",
		})
	})
	if err == nil {
		s.connections.add(c)
	}
	return err
}

// pollingAgents implements the interface of polling with the use cases.
type pollingAgents struct{ *Service }

func (p pollingAgents) AgentTargets(ctx context.Context, tx store.Tx, agent fleet.Agent) ([]rollout.AgentTarget, error) {
	return p.agentTargets(ctx, tx, agent, nil)
}

func (p pollingAgents) AgentPolls(ctx context.Context, c fleet.Connection) error {
	return p.pollerCame(ctx, c)
}

// Applications returns the desired state of a polling agent; see [polling.Poller.Applications].
func (s *Service) Applications(ctx context.Context, agent fleet.Agent) ([]polling.Application, string, error) {
	return s.polling.Applications(ctx, agent)
}

// WaitApplications is Applications for a caller with a known tag; see [polling.Poller.WaitApplications].
func (s *Service) WaitApplications(ctx context.Context, agent fleet.Agent, tag string, wait time.Duration) ([]polling.Application, string, bool, error) {
	return s.polling.WaitApplications(ctx, agent, tag, wait)
}
