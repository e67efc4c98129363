package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ErrAgentChanged means that an agent was configured differently since the caller has read it.
var ErrAgentChanged = errors.New("the configuration of the agent changed")

// TargetsOf returns the targets of an agent, of any tenant: all of them, or the given ones. It includes
// tombstones and detached targets. It fails with ErrAgentChanged if agent is not configured as the database says.
func (s *Service) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]rollout.AgentTarget, error) {
	var out []rollout.AgentTarget
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if err := sameAgentNow(ctx, tx, agent); err != nil {
			return err
		}
		out, err = s.agentTargets(ctx, tx, agent, ids)
		if err == nil {
			err = s.addCredentials(ctx, tx, agent, out)
		}
		return err
	})
	return out, err
}

// sameAgentNow fails if the configuration of an agent has changed. Most edits change the revision, and most callers have the
// current one.
func sameAgentNow(ctx context.Context, tx store.Tx, agent fleet.Agent) error {
	revision, err := tx.Agents().SpecRevision(ctx, agent.TenantID, agent.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // a deleted agent has no targets
	}
	if err != nil || revision == agent.SpecRevision {
		return err
	}
	now, err := tx.Agents().Get(ctx, agent.TenantID, agent.ID)
	if err == nil && !now.SameToAgent(agent) {
		err = ErrAgentChanged
	}
	return err
}

func (s *Service) agentTargets(ctx context.Context, tx store.Tx, agent fleet.Agent, ids []fleet.TargetID) ([]rollout.AgentTarget, error) {
	var targets []fleet.Target
	var err error
	if ids == nil {
		targets, err = tx.Targets().OfAgentAllTenants(ctx, agent.ID)
	} else {
		targets, err = tx.Targets().GetAllTenants(ctx, agent.ID, ids)
	}
	if err != nil {
		return nil, err
	}
	out := make([]rollout.AgentTarget, 0, len(targets))
	for _, t := range targets {
		name, err := s.tenantName(ctx, tx, t.TenantID)
		if err != nil {
			return nil, err
		}
		at := rollout.AgentTarget{Target: t, Tenant: name}
		if agent.EngineNamespace != "" {
			if err := addSource(ctx, tx, agent, &at); err != nil {
				return nil, err
			}
		}
		out = append(out, at)
	}
	return out, nil
}

// addSource adds the source in force for an agent with Argo CD. The commit of another source revision must never be
// combined with it: such a target waits for its next desired state.
func addSource(ctx context.Context, tx store.Tx, agent fleet.Agent, t *rollout.AgentTarget) error {
	if t.Desired.Tombstone || t.Desired.Detached || t.Desired.Digest == "" {
		return nil
	}
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return fmt.Errorf("reading the deployment of target %s: %w", t.ID, err)
	}
	source, err := fleet.EngineSourceOf(d, agent)
	if d.SourceRevision != t.Desired.SourceRevision && d.Pin.Active() && err == nil && source.Kind != fleet.SourceDetected {
		source.Unsupported = append(source.Unsupported, "a rollback to a revision of an earlier source")
		t.Source = &source
		return nil
	}
	if d.SourceRevision != t.Desired.SourceRevision || err != nil || source.Kind == fleet.SourceDetected {
		t.SourceWaits = true // without a variant for the agent, the target keeps its state
		return nil
	}
	t.Source = &source
	if agent.Instance {
		source.Environment, err = pushEnvironmentOf(ctx, tx, d)
	}
	return err
}

// tenantName caches: the name of a tenant never changes.
func (s *Service) tenantName(ctx context.Context, tx store.Tx, id fleet.TenantID) (string, error) {
	if name, ok := s.tenantNames.Load(id); ok {
		return name.(string), nil
	}
	t, err := tx.Tenants().Get(ctx, id)
	if err != nil {
		return "", fmt.Errorf("reading tenant %s: %w", id, err)
	}
	s.tenantNames.Store(id, t.Name)
	return t.Name, nil
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

// BundleOwner returns the tenant of a bundle that a target of the agent refers to. Otherwise it fails with
// store.ErrNotFound: a digest is no permission.
func (s *Service) BundleOwner(ctx context.Context, agent fleet.Agent, digest string) (fleet.TenantID, error) {
	var owner fleet.TenantID
	err := s.store.View(ctx, func(tx store.Tx) error {
		targets, err := tx.Targets().OfAgentAllTenants(ctx, agent.ID)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if digest != "" && t.Desired.Digest == digest {
				owner = t.TenantID
				return nil
			}
		}
		return store.ErrNotFound
	})
	return owner, err
}

// AgentAhead records that an agent has a newer version of a target than the server; see
// [rollout.Planner.AgentAhead].
func (s *Service) AgentAhead(ctx context.Context, agent fleet.Agent, id fleet.TargetID, has fleet.Version) error {
	return s.planner.AgentAhead(ctx, agent, id, has)
}

// Report writes reports of agents, all in one transaction; see [rollout.Planner.Report].
func (s *Service) Report(ctx context.Context, batch []rollout.AgentReports) error {
	if err := s.planner.Report(ctx, batch); err != nil {
		return err
	}
	s.finishMoves(ctx, batch)
	return nil
}
