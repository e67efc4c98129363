package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentTarget is a target as its agent is told of it.
type AgentTarget struct {
	fleet.Target
	Tenant string // name of the deployment's tenant, which is not the agent's when the environment was granted
}

// Released reports whether the agent has let go of the target and knows nothing of it any more.
func (t AgentTarget) Released() bool {
	return t.Desired.Detached && t.Observed.Sync == fleet.SyncDetached && t.Observed.Version == t.Desired.Version
}

// TargetsOf returns the targets of an agent, of whatever tenant: all of them, or those named.
// Tombstones are among them, and what is detached.
func (s *Service) TargetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]AgentTarget, error) {
	var out []AgentTarget
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = s.agentTargets(ctx, tx, agent, ids)
		return err
	})
	return out, err
}

func (s *Service) agentTargets(ctx context.Context, tx store.Tx, agent fleet.Agent, ids []fleet.TargetID) ([]AgentTarget, error) {
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
	out := make([]AgentTarget, 0, len(targets))
	for _, t := range targets {
		name, err := s.tenantName(ctx, tx, t.TenantID)
		if err != nil {
			return nil, err
		}
		out = append(out, AgentTarget{Target: t, Tenant: name})
	}
	return out, nil
}

// tenantName remembers: a tenant keeps its name for as long as it lives.
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

// AgentAhead records that an agent has a newer version of a target than the server knows of, or
// another bundle of the same version: the database is older than the cluster. The target is Rewound,
// and its source is resolved from Git anew before anything is sent (invariant 4). To delete or to let
// go needs nothing from Git: it is an explicit wish, and only has to become newer than what the agent has.
func (s *Service) AgentAhead(ctx context.Context, agent fleet.Agent, id fleet.TargetID, has fleet.Version) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		found, err := tx.Targets().GetAllTenants(ctx, agent.ID, []fleet.TargetID{id})
		if err != nil || len(found) == 0 {
			return err // a target that the server has lost is left alone: absence is never deletion
		}
		t := found[0]
		if t.Desired.Version.Compare(has) > 0 {
			return nil
		}
		if !has.Plausible(s.highestGiven(t)) {
			return s.refuseVersion(ctx, tx, t, has)
		}
		if !t.Desired.Tombstone && !t.Desired.Detached {
			_, err := tx.Targets().SetObserved(ctx, t.TenantID, []store.AgentReport{{Agent: agent.ID, Report: store.Report{Target: t.ID, Observed: fleet.Observed{
				Version: has, Sync: fleet.SyncRewound, Health: fleet.HealthUnknown, AsOf: s.cfg.Now(), Message: rewoundMessage,
			}}}})
			if err != nil {
				return err
			}
		}
		return s.catchUpSoon(ctx, tx, t, has)
	})
}

const rewoundMessage = "the agent is ahead of the server's database: reading the source anew before anything is sent"

// catchUp does what follows from an agent that is ahead of the server.
func (s *Service) catchUp(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	switch {
	case t.Desired.Tombstone:
		return s.buryAgain(ctx, tx, t, has)
	case t.Desired.Detached:
		newer := t.Desired
		newer.Version = s.next(has)
		return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, newer)
	default:
		return s.rewind(ctx, tx, t, has)
	}
}

// buryAgain repeats a tombstone above what the agent has, if its deployment was deleted: that cannot be
// taken back. Of one that lives the tombstone may be older than a return of the agent, so it is only let go.
func (s *Service) buryAgain(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	newer := t.Desired
	newer.Version = s.next(has)
	if d.DeletedAt.IsZero() {
		newer.Tombstone, newer.Detached = false, true
		t.DetachedAt, t.DetachedWhy, t.GrantID = s.cfg.Now(), "the server's database is older than its agent: what it holds stays", ""
		if err := tx.Targets().SetPlace(ctx, t); err != nil {
			return err
		}
	}
	return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, newer)
}

// rewind has the source of a target read anew that is Rewound.
func (s *Service) rewind(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// Whichever replica reads the repository hears of it through the feed.
	if err := tx.Changes().RecordPush(ctx, t.TenantID, d.RepositoryID, ""); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventWarning, Reason: "Rewound", Agent: t.AgentName, Deployment: d.Name,
		Message: fmt.Sprintf("the agent holds generation %d, which the server (at %d) knows nothing of: was an old backup restored?", has.Generation, t.Desired.Generation),
	})
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

// BundleOwner returns the tenant whose bundle a target of the agent names. It fails with
// store.ErrNotFound when none does: a digest is no permission.
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
