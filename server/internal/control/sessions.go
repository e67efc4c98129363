package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentConnected records that a replica of an agent has introduced itself.
func (s *Service) AgentConnected(ctx context.Context, c fleet.Connection) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, c.TenantID, c.AgentID)
		if err != nil {
			return err
		}
		if err := tx.Connections().Put(ctx, c); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: c.TenantID, Type: fleet.EventNormal, Reason: "AgentConnected", Agent: agent.Name,
			Message: fmt.Sprintf("replica %s connected (version %s, Kubernetes %s)", c.Replica, c.Version, c.KubeVersion),
		})
	})
}

// AgentDisconnected records the end of a session.
func (s *Service) AgentDisconnected(ctx context.Context, c fleet.Connection, lastSeen time.Time) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := tx.Agents().Get(ctx, c.TenantID, c.AgentID)
		if errors.Is(err, store.ErrNotFound) {
			return nil // deleted meanwhile, with its connections
		}
		if err != nil {
			return err
		}
		closed, err := tx.Connections().Close(ctx, c.SessionID, lastSeen, s.cfg.Now())
		if err != nil || !closed {
			return err // a newer session of this replica is there already
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: c.TenantID, Type: fleet.EventWarning, Reason: "AgentDisconnected", Agent: agent.Name,
			Message: fmt.Sprintf("replica %s disconnected", c.Replica),
		})
	})
}

// TargetsOf returns the targets of an agent that there is something to say about, tombstones
// included: all of them, or those named.
func (s *Service) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]fleet.Target, error) {
	var out []fleet.Target
	keep := func(t fleet.Target) {
		if t.AgentID == agent.ID && (t.Desired.Digest != "" || t.Desired.Tombstone) {
			out = append(out, t)
		}
	}
	err := s.store.View(ctx, func(tx store.Tx) error {
		if ids == nil {
			targets, err := tx.Targets().OfAgent(ctx, agent.TenantID, agent.ID)
			for _, t := range targets {
				keep(t)
			}
			return err
		}
		for _, id := range ids {
			t, err := tx.Targets().Get(ctx, agent.TenantID, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			keep(t)
		}
		return nil
	})
	return out, err
}

// AgentAhead records that an agent has a newer version of a target than the server knows of, or
// another bundle of the same version: the database is older than the cluster. The target is Rewound,
// and its source is resolved from Git anew before anything is sent (invariant 4). A tombstone needs
// nothing from Git: it is an explicit wish, and only has to become newer than what the agent has.
func (s *Service) AgentAhead(ctx context.Context, agent fleet.Agent, id fleet.TargetID, has fleet.Version) error {
	var repo fleet.RepositoryID
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := tx.Targets().Get(ctx, agent.TenantID, id)
		if err != nil {
			return err
		}
		if t.Desired.Version.Compare(has) > 0 {
			return nil
		}
		if t.Desired.Tombstone {
			tombstone := t.Desired
			tombstone.Version = next(has)
			return tx.Targets().SetDesired(ctx, agent.TenantID, id, tombstone)
		}
		d, err := tx.Deployments().Get(ctx, agent.TenantID, t.DeploymentID)
		if err != nil {
			return err
		}
		repo = d.RepositoryID
		if err := tx.Targets().SetObserved(ctx, agent.TenantID, agent.ID, store.Report{Target: id, Observed: fleet.Observed{
			Version: has, Sync: fleet.SyncRewound, Health: fleet.HealthUnknown, AsOf: s.cfg.Now(),
			Message: "the agent is ahead of the server's database: reading the source anew before anything is sent",
		}}); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: agent.TenantID, Type: fleet.EventWarning, Reason: "Rewound", Agent: agent.Name, Deployment: d.Name,
			Message: fmt.Sprintf("the agent holds generation %d, which the server (at %d) knows nothing of: was an old backup restored?", has.Generation, t.Desired.Generation),
		})
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil // a target that the server has lost is left alone: absence is never deletion
	}
	if err == nil && repo != "" {
		s.sources.wake(repo, wakeup{check: true, rewound: true})
	}
	return err
}

// Bundle returns a bundle of a tenant by its digest.
func (s *Service) Bundle(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
	var out fleet.Bundle
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = tx.Bundles().Get(ctx, tenant, digest)
		return err
	})
	return out, err
}

// Report writes what agents said, all in one transaction.
func (s *Service) Report(ctx context.Context, batch []AgentReports) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		for _, from := range batch {
			for _, r := range from.Reports {
				if err := s.report(ctx, tx, from.Agent, r); err != nil {
					return fmt.Errorf("recording the status of target %s: %w", r.Target, err)
				}
			}
			for _, e := range from.Events {
				if err := s.relayEvent(ctx, tx, from.Agent, e); err != nil {
					return fmt.Errorf("recording an event of agent %q: %w", from.Agent.Name, err)
				}
			}
		}
		return nil
	})
}

func (s *Service) report(ctx context.Context, tx store.Tx, agent fleet.Agent, r store.Report) error {
	err := tx.Targets().SetObserved(ctx, agent.TenantID, agent.ID, r)
	if errors.Is(err, store.ErrNotFound) {
		return nil // not (or no longer) a target of this agent
	}
	if err != nil || r.Observed.Sync != fleet.SyncDeleted {
		return err
	}
	t, err := tx.Targets().Get(ctx, agent.TenantID, r.Target)
	if err != nil {
		return err
	}
	if !t.Desired.Tombstone || r.Observed.Version != t.Desired.Version {
		return nil
	}
	return s.forget(ctx, tx, agent, t)
}

// forget removes a target whose tombstone was carried out, and with the last one the deployment.
func (s *Service) forget(ctx context.Context, tx store.Tx, agent fleet.Agent, t fleet.Target) error {
	if err := tx.Targets().Remove(ctx, t.TenantID, t.ID); err != nil {
		return err
	}
	if err := s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventNormal, Reason: "TargetDeleted", Agent: agent.Name, Deployment: t.DeploymentName,
		Message: "the objects of the deleted deployment are gone" + suffixed(t.Observed.Message),
	}); err != nil {
		return err
	}
	left, err := tx.Targets().OfDeployment(ctx, t.TenantID, t.DeploymentID)
	if err != nil || len(left) > 0 {
		return err
	}
	return tx.Deployments().Remove(ctx, t.TenantID, t.DeploymentID)
}

func (s *Service) relayEvent(ctx context.Context, tx store.Tx, agent fleet.Agent, e AgentEvent) error {
	e.Event.TenantID, e.Event.Agent = agent.TenantID, agent.Name
	e.Event.Deployment = ""
	if e.Target != "" {
		t, err := tx.Targets().Get(ctx, agent.TenantID, e.Target)
		if errors.Is(err, store.ErrNotFound) || (err == nil && t.AgentID != agent.ID) {
			return nil
		}
		if err != nil {
			return err
		}
		e.Event.Deployment = t.DeploymentName
	}
	return tx.Events().Append(ctx, e.Event)
}
