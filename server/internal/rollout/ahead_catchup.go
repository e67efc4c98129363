package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentAhead records that an agent has a newer version of a target than the server, or another bundle of the
// same version: the database is older than the cluster. The target is Rewound, and its source is resolved from
// Git again before anything is sent (invariant 4). Deletion and detachment need nothing from Git: they are
// explicit, and only need a newer version than the agent has.
func (s *Planner) AgentAhead(ctx context.Context, agent fleet.Agent, id fleet.TargetID, has fleet.Version) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		found, err := tx.Targets().GetAllTenants(ctx, agent.ID, []fleet.TargetID{id})
		if err != nil || len(found) == 0 {
			return err // a target that the server has lost does not change: absence is never deletion
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

const rewoundMessage = "the agent is ahead of the server's database: reading the source again before anything is sent"

// catchUp handles an agent that is ahead of the server.
func (s *Planner) catchUp(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	switch {
	case t.Desired.Tombstone:
		return s.repeatTombstone(ctx, tx, t, has)
	case t.Desired.Detached:
		newer := t.Desired
		newer.Version = s.Next(has)
		return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, newer)
	default:
		return s.rewind(ctx, tx, t, has)
	}
}

// repeatTombstone repeats a tombstone with a newer version than the agent has, if its deployment was deleted:
// that is final. If the deployment exists, the tombstone may be older than a return of the agent, so the target
// is only detached.
func (s *Planner) repeatTombstone(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	newer := t.Desired
	newer.Version = s.Next(has)
	if d.DeletedAt.IsZero() {
		newer.Tombstone, newer.Detached = false, true
		t.DetachedAt, t.DetachedWhy, t.GrantID = s.cfg.Now(), "the server's database is older than its agent: its objects stay", ""
		if err := tx.Targets().SetPlace(ctx, t); err != nil {
			return err
		}
	}
	return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, newer)
}

// rewind lets the source of a Rewound target be read again.
func (s *Planner) rewind(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
	d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// Whichever replica reads the repository hears of it through the feed.
	if err := tx.Changes().WakeRepository(ctx, t.TenantID, d.RepositoryID, store.Wake{Reason: store.WakeTargetAhead}); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonRewound, Agent: t.AgentName, Deployment: d.Name,
		Message: fmt.Sprintf("the agent has generation %d, which the server (at %d) does not know: was an old backup restored?", has.Generation, t.Desired.Generation),
	})
}
