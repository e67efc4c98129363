package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// All state of a run is in the store, so a restarted server continues with it:
//
//	Pending ──first in line, not held──▶ Running ──every target has finished──▶ Succeeded | Failed
//	   │  a sync: by the worker of its      │ newest first: agents that left are not waited for
//	   │  repository; a rollback: directly  │
//	   └────────────── terminated ──────────┴──▶ Terminated

// advanceRuns moves the runs of d on as far as they come without Git. targets are those that may
// have changed.
func (st *Reconciler) advanceRuns(ctx context.Context, d fleet.Deployment, targets []fleet.Target, held fleet.Cause) error {
	open, err := st.tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	for _, run := range open {
		var done bool
		switch {
		case run.Phase == fleet.RunRunning:
			done, err = st.review(ctx, run, targets)
		case !held.IsZero():
			return st.DelayRun(ctx, run, held)
		case run.Kind == fleet.RunRollback:
			done, err = st.startRollback(ctx, &d, run)
		case d.PendingSpecRevision != 0:
			return st.DelayForSpec(ctx, d, run)
		default:
			// Git is needed: the change of the run wakes the worker of the repository.
			return st.clearDelay(ctx, run)
		}
		if err != nil || !done {
			return err
		}
	}
	return nil
}

// DelayRun records on a run why it does not start.
func (st *Reconciler) DelayRun(ctx context.Context, run fleet.SyncRun, why fleet.Cause) error {
	if run.Cause() == why {
		return nil
	}
	run.Reason, run.Message = why.Reason, why.Message
	return st.tx.Runs().Update(ctx, run)
}

// unhold removes the message of DelayRun. That is a change, and wakes the starter of the run.
func (st *Reconciler) clearDelay(ctx context.Context, run fleet.SyncRun) error {
	return st.DelayRun(ctx, run, fleet.Cause{})
}

// idle reports whether no run of d is running.
func (st *Reconciler) idle(ctx context.Context, d fleet.Deployment) (bool, error) {
	open, err := st.tx.Runs().Open(ctx, d.TenantID, d.ID)
	return len(open) == 0 || open[0].Phase != fleet.RunRunning, err
}

// startRollback starts a run to a kept revision, which needs no Git.
func (st *Reconciler) startRollback(ctx context.Context, d *fleet.Deployment, run fleet.SyncRun) (done bool, err error) {
	revision, err := st.tx.Revisions().Get(ctx, d.TenantID, d.ID, run.Kept)
	if errors.Is(err, store.ErrNotFound) {
		return true, st.FinishRun(ctx, run, fleet.RunFailed, fleet.Cause{Reason: fleet.ReasonRevisionNotKept, Message: fmt.Sprintf("revision %d is no longer kept", run.Kept)})
	}
	if err != nil {
		return false, err
	}
	return st.StartRun(ctx, d, run, revision, nil)
}

// StartRun chooses a revision for d because of a run, writes it to the targets, and waits for them. problems
// has, by variant, why there is no bundle for it.
func (st *Reconciler) StartRun(ctx context.Context, d *fleet.Deployment, run fleet.SyncRun, revision fleet.Revision, problems map[string]string) (done bool, err error) {
	now := st.planner.cfg.Now()
	run.Phase, run.Reason, run.Message, run.Commit, run.Kept, run.StartedAt = fleet.RunRunning, fleet.ReasonWaitingForTargets, "", revision.Commit, revision.Seq, now
	if err := st.tx.Runs().Update(ctx, run); err != nil {
		return false, err
	}
	if err := st.setOperation(ctx, run.TenantID, run.OperationID, fleet.OperationInProgress, ""); err != nil {
		return false, err
	}
	if d.Policy.Manual || PinsDeployment(*d, run) {
		d.Pin = fleet.Pin{Revision: revision.Seq, Commit: revision.Commit, At: now, By: run.By, SourceRevision: d.SourceRevision}
		if err := st.tx.Deployments().Update(ctx, *d); err != nil {
			return false, err
		}
		d.SpecRevision++
	}
	targets, err := st.tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return false, err
	}
	st.failed, st.repair = problems, run.Kind != fleet.RunRollback
	err = st.writeDesired(ctx, d, targets)
	st.repair = false
	if err != nil {
		return false, err
	}
	if err := st.awaitTargets(ctx, *d, &run, targets, choiceOfRevision(revision), problems); err != nil {
		return false, err
	}
	if err := st.tellRun(ctx, *d, run, fleet.ReasonRunStarted, fleet.EventNormal); err != nil {
		return false, err
	}
	return st.review(ctx, run, targets)
}

// awaitTargets stores the targets of a run. It does not wait for agents that never connected, unless there are
// no others: a run that reached no agent has not succeeded. The message of the run has their number.
func (st *Reconciler) awaitTargets(ctx context.Context, d fleet.Deployment, run *fleet.SyncRun, targets []fleet.Target, w choice, problems map[string]string) error {
	connections, err := PresenceOf(ctx, st.tx, targets)
	if err != nil {
		return err
	}
	var waiting []fleet.RunTarget
	var never []int // indexes in waiting
	others := 0     // that it waits for
	for _, t := range targets {
		if !Attached(t) {
			continue
		}
		rt := st.await(d, t, w, problems)
		switch {
		case rt.Done:
		case neverConnected(t, PresenceBy(connections[t.AgentID])):
			never = append(never, len(waiting))
		default:
			others++
		}
		waiting = append(waiting, rt)
	}
	if others == 0 {
		never = nil
	}
	for _, i := range never {
		waiting[i].Done, waiting[i].Message = true, "not waited for: the agent has never connected"
	}
	if err := st.tx.Runs().SetTargets(ctx, run.TenantID, run.ID, waiting); err != nil || len(never) == 0 {
		return err
	}
	run.Message = fmt.Sprintf("not waiting for %s that%s", wording.Count(len(never), "agent"), HaveNeverConnected(len(never)))
	return st.tx.Runs().Update(ctx, *run)
}

func neverConnected(t fleet.Target, presence fleet.Presence) bool {
	return !presence.Connected && t.LostSince(presence).IsZero()
}

// PinsDeployment reports whether a run moves an automated deployment away from its source.
func PinsDeployment(d fleet.Deployment, run fleet.SyncRun) bool {
	return run.Kind == fleet.RunRollback || (run.Revision != "" && run.Revision != d.Source.Revision)
}

// await returns what a run waits for on a target, or why it need not wait.
func (st *Reconciler) await(d fleet.Deployment, t fleet.Target, w choice, problems map[string]string) fleet.RunTarget {
	rt := fleet.RunTarget{TargetID: t.ID, Version: t.Desired.Version}
	bundle, ok := w.forTarget(t)
	switch {
	case Refused(t):
		rt.Done, rt.Failed, rt.Reason, rt.Message = true, true, fleet.ReasonLabelMissing, t.VariantError
	case t.KindError != "":
		rt.Done, rt.Failed, rt.Reason, rt.Message = true, true, fleet.ReasonKindNotAllowed, t.KindError
	case problems[t.Variant] != "":
		rt.Done, rt.Failed, rt.Reason, rt.Message = true, true, fleet.ReasonRenderFailed, problems[t.Variant]
	case !ok:
		rt.Done, rt.Failed, rt.Reason, rt.Message = true, true, fleet.ReasonRevisionNotKept, "the revision has no bundle for this agent: its labels or the source have changed"
	case rewound(t), st.planner.restored(t) && t.Desired.Digest != bundle.Digest:
		// It gets its version after its source is read again.
		rt.Version = st.planner.Next(Newest(t))
	case t.Desired.Digest != bundle.Digest:
		rt.Done, rt.Failed, rt.Reason = true, true, cmp.Or(d.SourceReason, fleet.ReasonVersionRefused)
		rt.Message = "it did not get the revision" + wording.Suffix(d.SourceError)
	}
	return rt
}

// review checks the targets of a run, and finishes it when all have finished.
func (st *Reconciler) review(ctx context.Context, run fleet.SyncRun, targets []fleet.Target) (done bool, err error) {
	waiting, err := st.tx.Runs().Targets(ctx, run.TenantID, run.ID)
	if err != nil {
		return false, err
	}
	open := make(map[fleet.TargetID]fleet.RunTarget, len(waiting))
	for _, rt := range waiting {
		if !rt.Done {
			open[rt.TargetID] = rt
		}
	}
	for _, t := range targets {
		rt, ok := open[t.ID]
		if !ok || !answer(t, &rt) {
			continue
		}
		if err := st.tx.Runs().SetTarget(ctx, run.TenantID, run.ID, rt); err != nil {
			return false, err
		}
	}
	return st.conclude(ctx, run)
}

// answer reports whether a run need not wait for t any longer, and sets the reason in rt.
func answer(t fleet.Target, rt *fleet.RunTarget) bool {
	switch {
	case !Attached(t):
		rt.Done, rt.Reason, rt.Message = true, fleet.ReasonTargetDetached, "no longer waited for: it has left"+wording.Suffix(t.DetachedWhy)
	case t.Observed.Version.Compare(rt.Version) < 0:
	case t.Observed.Sync == fleet.SyncSynced:
		rt.Done, rt.Reason, rt.Message = true, fleet.ReasonSynced, ""
	case t.Observed.Sync == fleet.SyncOutOfSync: // it was tried and left unchanged: that is the policy
		rt.Done, rt.Reason, rt.Message = true, t.Observed.Reason, t.Observed.Message
	case t.Observed.Sync == fleet.SyncFailed:
		rt.Done, rt.Failed, rt.Reason, rt.Message = true, true, t.Observed.Reason, t.Observed.Message
	}
	return rt.Done
}

// conclude finishes a run that waits for no target any longer.
func (st *Reconciler) conclude(ctx context.Context, run fleet.SyncRun) (done bool, err error) {
	open, failed, err := st.tx.Runs().CountOpenTargets(ctx, run.TenantID, run.ID)
	if err != nil || open > 0 {
		return false, err
	}
	if failed == 0 {
		return true, st.FinishRun(ctx, run, fleet.RunSucceeded, fleet.Cause{Reason: fleet.ReasonSucceeded, Message: run.Message})
	}
	message, err := st.failures(ctx, run, failed)
	if err != nil {
		return false, err
	}
	return true, st.FinishRun(ctx, run, fleet.RunFailed, fleet.Cause{Reason: fleet.ReasonTargetsFailed, Message: message})
}

// failures lists some of the failed targets, and why.
func (st *Reconciler) failures(ctx context.Context, run fleet.SyncRun, failed int) (string, error) {
	const named = 3
	waiting, err := st.tx.Runs().Targets(ctx, run.TenantID, run.ID)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, rt := range waiting {
		if !rt.Failed || len(parts) == named {
			continue
		}
		t, err := st.tx.Targets().Get(ctx, run.TenantID, rt.TargetID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		parts = append(parts, t.AgentName+wording.Suffix(rt.Message))
	}
	return fmt.Sprintf("%d of %d targets failed: %s", failed, len(waiting), strings.Join(parts, "; ")), nil
}

// finishedReasons are the reasons of the events of finished runs.
var finishedReasons = map[fleet.RunPhase]fleet.Reason{
	fleet.RunSucceeded: fleet.ReasonRunSucceeded, fleet.RunFailed: fleet.ReasonRunFailed, fleet.RunTerminated: fleet.ReasonRunTerminated,
}

// FinishRun ends a run, with its operation.
func (st *Reconciler) FinishRun(ctx context.Context, run fleet.SyncRun, phase fleet.RunPhase, why fleet.Cause) error {
	run.Phase, run.Reason, run.Message, run.FinishedAt = phase, why.Reason, why.Message, st.planner.cfg.Now()
	if err := st.tx.Runs().Update(ctx, run); err != nil {
		return err
	}
	problem := ""
	if phase != fleet.RunSucceeded {
		problem = why.Message
	}
	if err := st.planner.finishOperation(ctx, st.tx, run.TenantID, run.OperationID, problem); err != nil {
		return err
	}
	kind := fleet.EventNormal
	if phase == fleet.RunFailed {
		kind = fleet.EventWarning
	}
	d := fleet.Deployment{TenantID: run.TenantID, Name: run.Deployment}
	return st.tellRun(ctx, d, run, finishedReasons[phase], kind)
}

func (st *Reconciler) tellRun(ctx context.Context, d fleet.Deployment, run fleet.SyncRun, reason fleet.Reason, kind fleet.EventType) error {
	what := fmt.Sprintf("%s run %d", run.Kind, run.Seq)
	if run.Commit != "" {
		what += fmt.Sprintf(" to commit %.12s", run.Commit)
	}
	return st.planner.tell(ctx, st.tx, fleet.Event{
		TenantID: d.TenantID, Type: kind, Reason: reason, Deployment: d.Name, Message: what + wording.Suffix(run.Message),
	})
}

func (st *Reconciler) setOperation(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID, state fleet.OperationState, message string) error {
	if id == "" {
		return nil
	}
	return st.tx.Operations().SetState(ctx, tenant, id, state, message, st.planner.cfg.Now())
}

// observed is called after a report has changed a target: a run or a deletion may wait for it.
func (s *Planner) observed(ctx context.Context, tx store.Tx, t fleet.Target) error {
	if Released(t) {
		return s.removeReleased(ctx, tx, t)
	}
	switch t.Observed.Sync {
	case fleet.SyncSynced, fleet.SyncOutOfSync, fleet.SyncFailed:
	default:
		return nil
	}
	run, err := tx.Runs().WaitingForTarget(ctx, t.TenantID, t.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	st := s.NewReconciler(tx)
	done, err := st.hear(ctx, run, t)
	if err != nil || !done {
		return err
	}
	return s.NextRun(ctx, tx, run.TenantID, run.DeploymentID)
}

// hear is review for one target. Usually it does not read all targets of the run.
func (st *Reconciler) hear(ctx context.Context, run fleet.SyncRun, t fleet.Target) (done bool, err error) {
	if t.Observed.Version != t.Desired.Version {
		return st.review(ctx, run, []fleet.Target{t})
	}
	rt := fleet.RunTarget{TargetID: t.ID, Version: t.Desired.Version}
	if answer(t, &rt) {
		if err := st.tx.Runs().SetTarget(ctx, run.TenantID, run.ID, rt); err != nil {
			return false, err
		}
	}
	return st.conclude(ctx, run)
}

// NextRun starts the next run after one that is done.
func (s *Planner) NextRun(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.DeploymentID) error {
	d, err := tx.Deployments().Get(ctx, tenant, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.ReconcileTargets(ctx, tx, d, nil)
}

// NeedsGit reports whether a run has not started and needs a commit from Git.
func NeedsGit(run fleet.SyncRun) bool {
	return run.Phase == fleet.RunPending && run.Kind == fleet.RunSync
}
