package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// AgentAhead records that an agent has a newer version of a target than the server knows of, or
// another bundle of the same version: the database is older than the cluster. The target is Rewound,
// and its source is resolved from Git anew before anything is sent (invariant 4). To delete or to let
// go needs nothing from Git: it is an explicit wish, and only has to become newer than what the agent has.
func (s *Planner) AgentAhead(ctx context.Context, agent fleet.Agent, id fleet.TargetID, has fleet.Version) error {
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

// repeatTombstone repeats a tombstone above what the agent has, if its deployment was deleted: that cannot be
// taken back. Of one that lives the tombstone may be older than a return of the agent, so it is only let go.
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
		t.DetachedAt, t.DetachedWhy, t.GrantID = s.cfg.Now(), "the server's database is older than its agent: what it holds stays", ""
		if err := tx.Targets().SetPlace(ctx, t); err != nil {
			return err
		}
	}
	return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, newer)
}

// rewind has the source of a target read anew that is Rewound.
func (s *Planner) rewind(ctx context.Context, tx store.Tx, t fleet.Target, has fleet.Version) error {
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
