package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// RunWait is one reason why a run waits.
type RunWait struct {
	Reason  fleet.Reason
	Agent   string // name of the agent that has not finished; "" before the run starts
	Message string
}

// maxRunWaits limits the listed agents.
const maxRunWaits = 10

// RunWaiting returns what a run waits for: nothing if it is done. more is the number of agents that are not
// listed.
func (s *Service) RunWaiting(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID) (waits []RunWait, more int, err error) {
	err = s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		run, err := tx.Runs().Get(ctx, t.ID, id)
		if err != nil {
			return fmt.Errorf("sync run %q: %w", id, err)
		}
		switch run.Phase {
		case fleet.RunPending:
			wait, err := waitsToStart(ctx, tx, run)
			waits = []RunWait{wait}
			return err
		case fleet.RunRunning:
			waits, more, err = waitsForAgents(ctx, tx, run)
		}
		return err
	})
	return waits, more, err
}

// waitsToStart returns why a run has not started.
func waitsToStart(ctx context.Context, tx store.Tx, run fleet.SyncRun) (RunWait, error) {
	open, err := tx.Runs().Open(ctx, run.TenantID, run.DeploymentID)
	if err != nil {
		return RunWait{}, err
	}
	if len(open) > 0 && open[0].ID != run.ID {
		return RunWait{Reason: fleet.ReasonWaitsForTurn, Message: fmt.Sprintf(
			"run %d of the same deployment is %s and comes first; to end it: kedge run terminate %s", open[0].Seq, open[0].Phase, open[0].ID)}, nil
	}
	d, err := tx.Deployments().Get(ctx, run.TenantID, run.DeploymentID)
	if err != nil {
		return RunWait{}, err
	}
	held, err := rollout.SuspendedBy(ctx, tx, d)
	if err != nil {
		return RunWait{}, err
	}
	if !held.IsZero() {
		return RunWait{Reason: held.Reason, Message: held.Message}, nil
	}
	problems, err := tx.Repositories().Problems(ctx, run.TenantID, []fleet.RepositoryID{d.RepositoryID})
	if problem := problems[d.RepositoryID]; problem != "" {
		return RunWait{Reason: fleet.ReasonRepositoryUnreadable, Message: fmt.Sprintf("repository %s cannot be read: %s", d.Source.RepoURL, problem)}, err
	}
	return RunWait{Reason: fleet.ReasonReadingSource, Message: fmt.Sprintf("repository %s is being read", d.Source.RepoURL)}, err
}

// waitsForAgents lists agents that have not finished.
func waitsForAgents(ctx context.Context, tx store.Tx, run fleet.SyncRun) (waits []RunWait, more int, err error) {
	all, err := tx.Runs().Targets(ctx, run.TenantID, run.ID)
	if err != nil {
		return nil, 0, err
	}
	var ids []fleet.TargetID
	for _, rt := range all {
		if rt.Done {
			continue
		}
		if len(ids) == maxRunWaits {
			more++
			continue
		}
		ids = append(ids, rt.TargetID)
	}
	targets, err := tx.Targets().List(ctx, run.TenantID, ids)
	if err != nil {
		return nil, 0, err
	}
	connections, err := rollout.PresenceOf(ctx, tx, targets)
	for _, t := range targets {
		waits = append(waits, waitsForAgent(t, rollout.PresenceBy(connections[t.AgentID])))
	}
	return waits, more, err
}

func waitsForAgent(t fleet.Target, presence fleet.Presence) RunWait {
	w := RunWait{Agent: t.AgentName}
	switch lost := t.LostSince(presence); {
	case presence.Connected:
		view := t.ViewAt(presence)
		w.Reason, w.Message = fleet.ReasonApplying, string(view.Sync)+wording.Suffix(view.Message)
	case lost.IsZero():
		w.Reason, w.Message = fleet.ReasonAgentNeverConnected, "never connected"
	default:
		w.Reason, w.Message = fleet.ReasonAgentDisconnected, "not connected since "+lost.UTC().Format(time.RFC3339)
	}
	return w
}
