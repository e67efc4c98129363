package reposync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// commitPending writes the result of a pending spec. done means that nothing must be written for the spec in
// force; applies is as in recordOne. It returns the deployment if the spec is in force now: its targets must
// still get what was rendered.
func (w *worker) commitPending(ctx context.Context, tx store.Tx, st *rollout.Reconciler, o outcome) (promoted fleet.Deployment, applies, done bool, err error) {
	if o.pending == nil {
		return promoted, true, o.skipped, nil
	}
	d, err := tx.Deployments().Get(ctx, o.deployment.TenantID, o.deployment.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.DeletedAt.IsZero() {
		return promoted, true, true, nil
	}
	if err != nil || d.PendingSpecRevision != o.pending.spec.SpecRevision {
		return promoted, false, true, err // edited, withdrawn, or in force by now, by any replica
	}
	p, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return promoted, false, true, err
	}
	if !o.pending.promotable() {
		p.Reason, p.Problem = o.pending.obstacle()
		return promoted, true, o.skipped, w.pendingProblem(ctx, tx, st, d, p)
	}
	if overtaken, err := w.pendingOvertaken(ctx, tx, d, *o.pending); err != nil || overtaken {
		return promoted, false, true, err
	}
	refusal, err := w.refusalOf(ctx, tx, d, *o.pending)
	if err != nil {
		return promoted, false, true, err
	}
	if refusal != "" {
		p.Reason, p.Problem = fleet.ReasonSpecRefused, refusal
		if !o.pending.refused { // so the spec in force was not evaluated
			w.wake(wakeup{check: true})
		}
		return promoted, true, o.skipped, w.pendingProblem(ctx, tx, st, d, p)
	}
	promoted, err = w.promote(ctx, tx, st, d, p, o.pending.outcome)
	return promoted, true, true, err
}

// pendingProblem shows why a spec cannot take effect. Sync runs that wait for an unusable source fail: request
// a new run after the fix.
func (w *worker) pendingProblem(ctx context.Context, tx store.Tx, st *rollout.Reconciler, d fleet.Deployment, p fleet.PendingSpec) error {
	was, err := tx.PendingSpecs().Get(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	if p.Reason == fleet.ReasonSourceNotRendered {
		p.EditedAt = time.Time{} // no consent for its fix
	}
	if err := tx.PendingSpecs().SetProblem(ctx, p); err != nil {
		return err
	}
	if was.Reason != p.Reason || was.Problem != p.Problem {
		w.log.Info("a spec cannot take effect", obs.KeyDeployment, d.Name, "spec", p.SpecRevision, obs.KeyUserError, p.Reason == fleet.ReasonSourceNotRendered, obs.KeyReason, p.Problem)
		if err := w.svc.tell(ctx, tx, fleet.Event{
			TenantID: d.TenantID, Type: fleet.EventWarning, Reason: p.Reason, Deployment: d.Name, Message: p.String(),
		}); err != nil {
			return err
		}
	}
	if p.Reason != fleet.ReasonSourceNotRendered {
		return st.Reconcile(ctx, d, nil)
	}
	open, err := tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	for _, run := range open {
		if !rollout.NeedsGit(run) {
			continue
		}
		if err := st.FinishRun(ctx, run, fleet.RunFailed, fleet.Cause{Reason: p.Reason, Message: p.String()}); err != nil {
			return err
		}
	}
	return st.Reconcile(ctx, d, nil)
}

// pendingOvertaken reports whether the renders of a pending spec are no longer complete: its agents have
// changed, or what it shares with the spec in force was rendered again.
func (w *worker) pendingOvertaken(ctx context.Context, tx store.Tx, d fleet.Deployment, p pendingOutcome) (bool, error) {
	units, err := w.nextUnits(ctx, tx, d, p.deployment)
	if err != nil {
		return false, err
	}
	for _, u := range units {
		i := slices.IndexFunc(p.parts, func(part part) bool { return part.Variant == u.Variant })
		if i < 0 || p.parts[i].packed == nil && p.parts[i].digest != u.Was.Digest {
			return true, nil
		}
	}
	return false, nil
}

// refusalOf returns why a rendered spec must not take effect, or "". Everything was checked at the request, and
// may have changed since.
func (w *worker) refusalOf(ctx context.Context, tx store.Tx, d fleet.Deployment, p pendingOutcome) (string, error) {
	err := w.refuse(ctx, tx, d, p)
	var quota *quota.ExceededError
	var held *fleet.ConflictError
	var invalid *fleet.InvalidError
	if errors.As(err, &quota) || errors.As(err, &held) || errors.As(err, &invalid) {
		return err.Error(), nil
	}
	return "", err
}

func (w *worker) refuse(ctx context.Context, tx store.Tx, d fleet.Deployment, p pendingOutcome) error {
	next := d.With(p.spec)
	if err := w.svc.control.CheckSpec(ctx, tx, d, &next); err != nil {
		return err
	}
	dest, err := placement.DestinationOf(ctx, tx, next)
	if err != nil || dest.Grant.Limits.None() {
		return err
	}
	for _, part := range p.parts {
		why, err := w.beyondGrant(ctx, tx, next, part, dest.Grant.Limits)
		if err != nil {
			return err
		}
		if why != "" {
			return fleet.Conflict("%s", why)
		}
	}
	return nil
}

// beyondGrant returns which object of a part is beyond the limits of a grant, or "".
func (w *worker) beyondGrant(ctx context.Context, tx store.Tx, next fleet.Deployment, p part, limits fleet.Limits) (string, error) {
	if p.packed == nil {
		return w.svc.planner.Refusal(ctx, tx, next, p.digest, limits)
	}
	set, err := manifest.Unpack(p.packed.digest, p.packed.content, wire.MaxBundleContent)
	if err != nil {
		return "", err
	}
	return rollout.BeyondLimits(set, next.Namespace, limits), nil
}

// promote puts a completely rendered spec in force, with its renders and its placement. The caller reconciles
// its targets.
func (w *worker) promote(ctx context.Context, tx store.Tx, st *rollout.Reconciler, d fleet.Deployment, p fleet.PendingSpec, o outcome) (fleet.Deployment, error) {
	next := d.With(p)
	next.PendingSpecRevision, next.SourceRevision, next.Detected = 0, d.SourceRevision+1, o.detected()
	next.SourceReason, next.SourceError = "", ""
	if err := w.svc.planner.Repin(ctx, tx, p.By, d, &next); err != nil {
		return fleet.Deployment{}, err
	}
	if err := tx.Deployments().Promote(ctx, next); err != nil {
		return fleet.Deployment{}, err
	}
	if _, err := w.commitParts(ctx, tx, st, &next, o); err != nil {
		return fleet.Deployment{}, err
	}
	if next.Varies() && next.Rendered.Commit != o.commit { // there is no agent to render for, or nothing is new
		next.Rendered = fleet.Rendered{Commit: o.commit, At: w.svc.cfg.Now(), Volatile: o.volatile()}
		if err := tx.Deployments().SetRendered(ctx, next.TenantID, next.ID, next.Rendered); err != nil {
			return fleet.Deployment{}, err
		}
	}
	dest, err := placement.DestinationOf(ctx, tx, next)
	if err != nil {
		return fleet.Deployment{}, err
	}
	agents, err := placement.Candidates(ctx, tx, dest.Env)
	if err != nil {
		return fleet.Deployment{}, err
	}
	if err := w.svc.placer.Assign(ctx, tx, next, dest, agents, next.TenantID); err != nil {
		return fleet.Deployment{}, err
	}
	if err := w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonSpecInForce, Deployment: d.Name,
		Message: fmt.Sprintf("spec revision %d is in force, with commit %.12s of its source", p.SpecRevision, o.commit),
	}); err != nil {
		return fleet.Deployment{}, err
	}
	st.NoteEdit(next, p)
	return next, nil
}
