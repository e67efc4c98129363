package engineupgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// fail starts the way back of an instance, or gives it up if the way back has failed.
func (s *stepper) fail(ctx context.Context, i *fleet.EngineUpgradeInstance, why fleet.Cause) error {
	if i.Phase == fleet.EngineInstanceRollingBack || i.Phase == fleet.EngineInstanceCheckingRollback {
		return s.giveUp(ctx, i, why.Message)
	}
	i.Reason, i.Message = why.Reason, why.Message
	d, err := s.tx.Deployments().Get(ctx, s.u.TenantID, i.DeploymentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.DeletedAt.IsZero() {
		return s.giveUp(ctx, i, fmt.Sprintf("deployment %q was deleted", i.Deployment))
	}
	if err != nil {
		return err
	}
	run, err := s.deps.Control.AddRun(ctx, s.tx, *s.u, d, fleet.SyncRun{Kind: fleet.RunRollback, Kept: i.Before})
	var conflict *fleet.ConflictError
	if errors.As(err, &conflict) {
		return s.giveUp(ctx, i, conflict.Error())
	}
	if err != nil {
		return err
	}
	i.Phase, i.RunID, i.Deadline, i.CanaryAfter = fleet.EngineInstanceRollingBack, run.ID, s.now.Add(s.u.Timeout), fleet.Version{}
	return s.tell(ctx, fleet.EventWarning, fleet.ReasonEngineUpgradeRollingBack, i.Agent,
		fmt.Sprintf("Argo CD of agent %q is rolled back to commit %.12s: %s", i.Agent, i.BeforeCommit, why.Message))
}

// giveUp ends the upgrade with an instance that has neither the new nor the earlier revision in a healthy state.
func (s *stepper) giveUp(ctx context.Context, i *fleet.EngineUpgradeInstance, why string) error {
	i.Phase, i.FinishedAt, i.Deadline = fleet.EngineInstanceRollbackFailed, s.now, time.Time{}
	first := i.Message
	i.Reason, i.Message = fleet.ReasonEngineUpgradeRollbackFailed, fmt.Sprintf("%s; the way back failed: %s", first, why)
	return s.finish(ctx, fleet.EngineUpgradeRollbackFailed, fleet.Cause{Reason: i.Reason, Message: fmt.Sprintf(
		"the instance of agent %q may be broken: %s. Repair it by hand: kedge rollback %s --revision %d installs commit %.12s",
		i.Agent, i.Message, i.Deployment, i.Before, i.BeforeCommit)})
}

// finish ends the upgrade. Its message names the instances that were not touched.
func (s *stepper) finish(ctx context.Context, phase fleet.EngineUpgradePhase, why fleet.Cause) error {
	untouched := 0
	for n := range s.u.Instances {
		if i := &s.u.Instances[n]; i.Phase == fleet.EngineInstancePending {
			untouched++
			i.Deadline = time.Time{}
		}
	}
	if untouched > 0 {
		why.Message += fmt.Sprintf("; %s not touched", wording.Count(untouched, "instance"))
	}
	s.u.Phase, s.u.Reason, s.u.Message, s.u.FinishedAt = phase, why.Reason, why.Message, s.now
	kind, agent := fleet.EventWarning, ""
	if phase == fleet.EngineUpgradeSucceeded {
		kind = fleet.EventNormal
	} else if n := s.u.Current(); n < len(s.u.Instances) {
		agent = s.u.Instances[n].Agent
	}
	return s.tell(ctx, kind, why.Reason, agent, fmt.Sprintf("engine upgrade %q to %s: %s: %s", s.u.Name, s.u.Revision, phase, why.Message))
}

func (s *stepper) tell(ctx context.Context, kind fleet.EventType, reason fleet.Reason, agent, message string) error {
	return s.tx.Events().Append(ctx, fleet.Event{At: s.now, TenantID: s.u.TenantID, Type: kind, Reason: reason, Agent: agent, Message: message})
}
