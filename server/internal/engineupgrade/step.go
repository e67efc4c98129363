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

// stepper takes one step of an upgrade. It changes u, which its caller stores if the step was taken:
//
//	Pending           ready ─▶ sync run to the revision ─▶ Installing
//	Installing        run succeeded and Argo CD healthy ─▶ Checking
//	Checking          canary synced by the upgraded Argo CD ─▶ Upgraded, and the next instance
//	Installing, Checking
//	                  failed, deadline passed, or halted ─▶ rollback run to the revision before ─▶ RollingBack
//	RollingBack       Argo CD healthy ─▶ CheckingRollback
//	CheckingRollback  canary synced ─▶ RolledBack, the upgrade is Halted
//	RollingBack, CheckingRollback
//	                  failed or deadline passed ─▶ RollbackFailed, as the upgrade
type stepper struct {
	*Manager
	tx  store.Tx
	u   *fleet.EngineUpgrade
	now time.Time
}

// next takes the next step, and reports whether there was one.
func (s *stepper) next(ctx context.Context) (moved bool, err error) {
	n := s.u.Current()
	if n == len(s.u.Instances) {
		return true, s.finish(ctx, fleet.EngineUpgradeSucceeded, fleet.Cause{
			Reason: fleet.ReasonEngineUpgradeSucceeded, Message: wording.Count(n, "instance") + " upgraded",
		})
	}
	i := &s.u.Instances[n]
	switch i.Phase {
	case fleet.EngineInstancePending:
		return s.begin(ctx, i)
	case fleet.EngineInstanceInstalling, fleet.EngineInstanceRollingBack:
		return s.install(ctx, i)
	case fleet.EngineInstanceChecking, fleet.EngineInstanceCheckingRollback:
		return s.check(ctx, i)
	}
	return false, nil
}

// begin starts the upgrade of an instance as soon as the instance is healthy.
func (s *stepper) begin(ctx context.Context, i *fleet.EngineUpgradeInstance) (bool, error) {
	if s.u.Halt != fleet.HaltNone {
		return true, s.finish(ctx, fleet.EngineUpgradeHalted, s.haltedByUser())
	}
	d, why, err := s.notReady(ctx, *i)
	if err != nil {
		return false, err
	}
	if why == "" {
		return s.startInstall(ctx, i, d)
	}
	cause := fleet.Cause{Reason: fleet.ReasonEngineInstanceNotReady, Message: why}
	if i.Deadline.IsZero() {
		i.Deadline = s.now.Add(s.u.Timeout)
	} else if s.expired(*i) {
		i.Reason, i.Message = cause.Reason, cause.Message
		return true, s.finish(ctx, fleet.EngineUpgradeHalted, fleet.Cause{
			Reason: cause.Reason, Message: fmt.Sprintf("the instance of agent %q was not upgraded: %s", i.Agent, why),
		})
	} else if i.Message == why {
		return false, nil
	}
	i.Reason, i.Message = cause.Reason, cause.Message
	return true, nil
}

func (s *stepper) startInstall(ctx context.Context, i *fleet.EngineUpgradeInstance, d fleet.Deployment) (bool, error) {
	run, err := s.deps.Control.AddRun(ctx, s.tx, *s.u, d, fleet.SyncRun{Kind: fleet.RunSync, Revision: s.u.Revision})
	if err != nil {
		return false, err
	}
	i.Phase, i.Reason, i.Message, i.RunID = fleet.EngineInstanceInstalling, "", "", run.ID
	i.Before, i.BeforeCommit = d.Pin.Revision, d.Pin.Commit
	i.StartedAt, i.Deadline = s.now, s.now.Add(s.u.Timeout)
	return true, nil
}

// install waits for the sync run of the upgrade or of the way back, and for a healthy Argo CD.
func (s *stepper) install(ctx context.Context, i *fleet.EngineUpgradeInstance) (bool, error) {
	back := i.Phase == fleet.EngineInstanceRollingBack
	if !back && s.u.Halt == fleet.HaltRollBack {
		return true, s.fail(ctx, i, s.haltedByUser())
	}
	run, err := s.tx.Runs().Get(ctx, s.u.TenantID, i.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return true, s.fail(ctx, i, fleet.Cause{Reason: fleet.ReasonEngineInstallFailed, Message: fmt.Sprintf("deployment %q or its sync run was deleted", i.Deployment)})
	}
	if err != nil {
		return false, err
	}
	if !back {
		i.Commit = run.Commit
	}
	state, err := s.installed(ctx, *i, run)
	switch {
	case err != nil:
		return false, err
	case state.ok && back:
		i.Phase, i.CanaryAfter = fleet.EngineInstanceCheckingRollback, fleet.Version{}
		return true, nil
	case state.ok:
		i.Phase, i.CanaryAfter = fleet.EngineInstanceChecking, fleet.Version{}
		return true, nil
	case state.failed:
		return true, s.fail(ctx, i, fleet.Cause{Reason: fleet.ReasonEngineInstallFailed, Message: state.text})
	case s.expired(*i):
		return true, s.fail(ctx, i, fleet.Cause{Reason: fleet.ReasonEngineInstallTimedOut, Message: fmt.Sprintf("not healthy after %s: %s", s.u.Timeout, state.text)})
	}
	return false, nil
}

// check has Argo CD sync the canary, and waits for the result. Failures of the canary are repeated by its agent, so that
// only the deadline ends the check.
func (s *stepper) check(ctx context.Context, i *fleet.EngineUpgradeInstance) (bool, error) {
	back := i.Phase == fleet.EngineInstanceCheckingRollback
	if !back && s.u.Halt == fleet.HaltRollBack {
		return true, s.fail(ctx, i, s.haltedByUser())
	}
	p, err := s.canary(ctx, *i)
	if err != nil {
		return false, err
	}
	why := p.missing
	switch {
	case why != "":
	case i.CanaryAfter == fleet.Version{}:
		requested, err := s.deps.Planner.Resync(ctx, s.tx, p.deployment, p.target)
		if err != nil {
			return false, err
		}
		if requested {
			i.CanaryAfter = p.target.Desired.Version
			return true, nil
		}
		why = fmt.Sprintf("the sync of canary %q could not be requested: %s", i.Canary, p.describe())
	case p.target.Observed.Version.Compare(i.CanaryAfter) > 0 && p.settled():
		return true, s.checked(ctx, i)
	default:
		why = fmt.Sprintf("canary %q: %s", i.Canary, p.describe())
	}
	if s.expired(*i) {
		return true, s.fail(ctx, i, fleet.Cause{Reason: fleet.ReasonEngineCanaryTimedOut, Message: fmt.Sprintf("not synced after %s: %s", s.u.Timeout, why)})
	}
	return false, nil
}

// checked ends an instance whose canary is synced.
func (s *stepper) checked(ctx context.Context, i *fleet.EngineUpgradeInstance) error {
	i.FinishedAt, i.Deadline = s.now, time.Time{}
	if i.Phase == fleet.EngineInstanceCheckingRollback {
		i.Phase = fleet.EngineInstanceRolledBack
		return s.finish(ctx, fleet.EngineUpgradeHalted, fleet.Cause{Reason: i.Reason, Message: fmt.Sprintf(
			"the instance of agent %q was rolled back to commit %.12s and checked: %s", i.Agent, i.BeforeCommit, i.Message)})
	}
	i.Phase = fleet.EngineInstanceUpgraded
	return s.tell(ctx, fleet.EventNormal, fleet.ReasonEngineInstanceUpgraded, i.Agent,
		fmt.Sprintf("Argo CD of agent %q runs commit %.12s and has synced canary %q with it", i.Agent, i.Commit, i.Canary))
}

func (s *stepper) haltedByUser() fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonEngineUpgradeHaltedByUser, Message: "halted by " + s.u.HaltedBy}
}

func (s *stepper) expired(i fleet.EngineUpgradeInstance) bool { return !s.now.Before(i.Deadline) }
