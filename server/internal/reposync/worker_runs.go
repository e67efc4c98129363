package reposync

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pendingRuns reads the runs of this repository that wait for Git and are first in line.
func (w *worker) pendingRuns(ctx context.Context, tx store.Tx, todo work) ([]fleet.SyncRun, error) {
	ask := todo.due.runs
	if todo.due.allRuns {
		open, err := tx.Runs().OpenAllTenants(ctx)
		if err != nil {
			return nil, err
		}
		for _, run := range open {
			ask = union(ask, map[fleet.DeploymentID]bool{run.DeploymentID: true})
		}
	}
	var out []fleet.SyncRun
	for _, d := range todo.deployments {
		if !ask[d.ID] || d.Pending {
			continue
		}
		open, err := tx.Runs().Open(ctx, w.tenant, d.ID)
		if err != nil {
			return nil, err
		}
		if len(open) > 0 && rollout.NeedsGit(open[0]) {
			out = append(out, open[0])
		}
	}
	return out, nil
}

// delayRuns records on waiting runs why Git cannot be read. They start when it can.
func (w *worker) delayRuns(ctx context.Context, todo work, problem error) error {
	if len(todo.runs) == 0 {
		return nil
	}
	return w.svc.store.Update(ctx, func(tx store.Tx) error {
		st := w.svc.planner.NewReconciler(tx)
		for _, run := range todo.runs {
			run, err := tx.Runs().Get(ctx, run.TenantID, run.ID)
			if errors.Is(err, store.ErrNotFound) || (err == nil && run.Phase != fleet.RunPending) {
				continue
			}
			if err != nil {
				return err
			}
			if err := st.DelayRun(ctx, run, fleet.Cause{Reason: fleet.ReasonRepositoryUnreadable, Message: problem.Error()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// startRuns starts the runs that waited for Git, each in its own transaction.
func (w *worker) startRuns(ctx context.Context, r *pass, todo work, refs map[string]gitsource.Ref) error {
	trees := newTreeCache(w.svc.git, todo.access)
	failures := make([]error, len(todo.runs))
	var g errgroup.Group
	g.SetLimit(w.svc.cfg.RendersAtOnce + 1)
	for i, run := range todo.runs {
		if !w.claim(r, run.DeploymentID, wakeup{runs: map[fleet.DeploymentID]bool{run.DeploymentID: true}}) {
			continue
		}
		g.Go(func() error {
			defer w.free(r, run.DeploymentID)
			if err := w.startRun(ctx, r, run, refs, trees); err != nil {
				failures[i] = fmt.Errorf("sync run %d of deployment %q: %w", run.Seq, run.Deployment, err)
			}
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	return errors.Join(failures...)
}

func (w *worker) startRun(ctx context.Context, r *pass, run fleet.SyncRun, refs map[string]gitsource.Ref, trees *treeCache) error {
	// Read again: the newest commit was recorded since then.
	var d fleet.Deployment
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		d, err = tx.Deployments().Get(ctx, run.TenantID, run.DeploymentID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ref, ok := refs[cmp.Or(run.Revision, d.Source.Revision)]
	if !ok {
		// Edited since it was read.
		w.wake(wakeup{runs: map[fleet.DeploymentID]bool{d.ID: true}})
		return nil
	}
	o, err := w.evaluate(ctx, d, ref, trees, true)
	if err != nil {
		return err
	}
	if wait, err := w.putOff(ctx, r, o); err != nil || wait {
		return err
	}
	var again bool
	err = w.svc.store.Update(ctx, func(tx store.Tx) (err error) {
		again, err = w.commitRun(ctx, tx, run, o)
		return err
	})
	if err == nil && again {
		w.wake(wakeup{runs: map[fleet.DeploymentID]bool{d.ID: true}})
	}
	return err
}

// putOff reports whether a run must wait: it would remove objects, and a deployment that they may have moved to
// could not be evaluated. If that belongs to an earlier pass, its waiters already know the run.
func (w *worker) putOff(ctx context.Context, r *pass, o outcome) (bool, error) {
	if !r.skipped {
		return false, nil
	}
	loses, err := w.takesAway(ctx, o)
	if err == nil && loses && r.afterUnfinished {
		w.postpone(r, wakeup{check: true, runs: map[fleet.DeploymentID]bool{o.deployment.ID: true}})
	}
	return loses, err
}

// commitRun starts a run with the result of its commit. again means that something was edited concurrently, so
// that it must be evaluated again.
func (w *worker) commitRun(ctx context.Context, tx store.Tx, was fleet.SyncRun, o outcome) (again bool, err error) {
	d, same, err := w.current(ctx, tx, o.deployment)
	if err != nil || !d.DeletedAt.IsZero() || d.ID == "" {
		return false, err
	}
	open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil || len(open) == 0 || open[0].ID != was.ID || !rollout.NeedsGit(open[0]) {
		return false, err // terminated or started concurrently
	}
	run := open[0]
	if !same || run.Revision != was.Revision {
		return true, nil
	}
	st := w.svc.planner.NewResolvedReconciler(tx, nil)
	if d.PendingSpecRevision != 0 { // edited concurrently: the run belongs to that spec
		return false, st.DelayForSpec(ctx, d, run)
	}
	held, err := st.SuspendedBy(ctx, d)
	if err != nil {
		return false, err
	}
	if !held.IsZero() {
		return false, st.DelayRun(ctx, run, held)
	}
	if d.Pin.Active() && !d.Policy.Manual && !rollout.PinsDeployment(d, run) {
		o.problemReason = fleet.ReasonPinned
		o.problem = fmt.Sprintf("it was pinned to revision %d in the meantime: release it, or specify the revision to sync to", d.Pin.Revision)
		return false, w.endRun(ctx, tx, st, d, run, o)
	}
	bundles, problems := o.bundles()
	if len(bundles) == 0 {
		return false, w.endRun(ctx, tx, st, d, run, o)
	}
	for _, p := range o.parts {
		if err := w.putBundle(ctx, tx, d.TenantID, p.packed); err != nil {
			return false, err
		}
	}
	if err := keepRunning(ctx, tx, d, bundles, problems); err != nil {
		return false, err
	}
	revision, err := w.svc.planner.KeepRevision(ctx, tx, d, o.commit, bundles)
	if err != nil {
		return false, err
	}
	done, err := st.StartRun(ctx, &d, run, revision, problems)
	if err != nil {
		return false, err
	}
	w.markEvaluatedSpec(d)
	if done {
		return false, w.svc.planner.NextRun(ctx, tx, d.TenantID, d.ID)
	}
	return false, nil
}

// keepRunning adds the running bundles of failed variants to a revision that will be kept: while it is pinned,
// they stay unchanged, and do not get renders for other clusters.
func keepRunning(ctx context.Context, tx store.Tx, d fleet.Deployment, bundles, problems map[string]string) error {
	if len(problems) == 0 {
		return nil
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if problems[t.Variant] != "" && bundles[t.Variant] == "" && rollout.Attached(t) && t.Desired.Digest != "" {
			bundles[t.Variant] = t.Desired.Digest
		}
	}
	return nil
}

// endRun ends a run without anything to send, and starts the next: its commit cannot be used, or there is no
// agent to render a variant for.
func (w *worker) endRun(ctx context.Context, tx store.Tx, st *rollout.Reconciler, d fleet.Deployment, run fleet.SyncRun, o outcome) error {
	run.Commit, run.StartedAt = o.commit, w.svc.cfg.Now()
	phase, why := fleet.RunFailed, fleet.Cause{Reason: o.reason(), Message: o.summary()}
	if why.Message == "" {
		phase, why = fleet.RunSucceeded, fleet.Cause{Reason: fleet.ReasonNoAgents, Message: "no agent is selected"}
	}
	if err := st.FinishRun(ctx, run, phase, why); err != nil {
		return err
	}
	return w.svc.planner.NextRun(ctx, tx, d.TenantID, d.ID)
}

// bundles returns the digests of rendered variants, and the problems of the others.
func (o outcome) bundles() (digests, problems map[string]string) {
	digests, problems = map[string]string{}, map[string]string{}
	for _, p := range o.parts {
		if p.evaluation.problem != "" {
			problems[p.Variant] = p.evaluation.problem
		} else {
			digests[p.Variant] = p.digest
		}
	}
	return digests, problems
}
