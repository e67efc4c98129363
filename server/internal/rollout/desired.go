package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Reconcile writes the desired state of every target of d, and advances its sync runs. It writes nothing if
// nothing differs. It deletes nothing: tombstones are created elsewhere, explicitly, and do not change here.
func (s *Planner) Reconcile(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return s.ReconcileTargets(ctx, tx, d, targets)
}

// ReconcileTargets is Reconcile for some targets of d.
func (s *Planner) ReconcileTargets(ctx context.Context, tx store.Tx, d fleet.Deployment, targets []fleet.Target) error {
	return s.NewReconciler(tx).Reconcile(ctx, d, targets)
}

// Reconciler writes desired states of targets, within one transaction, for one deployment or many.
type Reconciler struct {
	planner *Planner
	tx      store.Tx
	holds   *Suspensions
	// resolved means that the sources were read from Git for this step, so that targets whose agents are ahead
	// of the server may continue.
	resolved bool
	// broken has the variants, by deployment, whose newest revision cannot be used: targets that are ahead of
	// the server wait for a usable one.
	broken map[fleet.DeploymentID]map[string]bool
	// failed has, by variant, why the starting run has no bundle for it.
	failed map[string]string
	// edits has the deployments whose own edit, and not a new commit, caused the states of this step.
	edits map[fleet.DeploymentID]bool
	// handOvers knows which lost objects other deployments want.
	handOvers *HandOvers
	// repair means that a sync was requested, see repairs.
	repair bool
	// stopped has the targets that a terminating run still waits for.
	stopped map[fleet.TargetID]bool
}

// NewReconciler returns a reconciler for one transaction.
func (s *Planner) NewReconciler(tx store.Tx) *Reconciler {
	return &Reconciler{planner: s, tx: tx, holds: NewSuspensions(tx), broken: map[fleet.DeploymentID]map[string]bool{}, edits: map[fleet.DeploymentID]bool{}, handOvers: NewHandOvers(s, tx, nil)}
}

// NewResolvedReconciler is NewReconciler for a step whose sources were read from Git. scope has what is known
// of the other deployments of the commit; it may be nil.
func (s *Planner) NewResolvedReconciler(tx store.Tx, scope *CommitScope) *Reconciler {
	st := s.NewReconciler(tx)
	st.resolved, st.handOvers = true, NewHandOvers(s, tx, scope)
	return st
}

// SetBroken records the variants of a deployment whose newest revision cannot be used.
func (st *Reconciler) SetBroken(id fleet.DeploymentID, variants map[string]bool) {
	st.broken[id] = variants
}

// SuspendedBy returns why no new state may be sent to the targets of d, or "".
func (st *Reconciler) SuspendedBy(ctx context.Context, d fleet.Deployment) (fleet.Cause, error) {
	return st.holds.Of(ctx, d)
}

// RefreshHandOvers updates the hand-overs of targets of a tenant for the given reasons.
func (st *Reconciler) RefreshHandOvers(ctx context.Context, tenant fleet.TenantID, changed func(fleet.HandOver) bool) error {
	return st.handOvers.Refresh(ctx, tenant, changed)
}

// Reconcile writes the desired states of targets of d, and advances the sync runs of d. It writes nothing if
// nothing differs.
func (st *Reconciler) Reconcile(ctx context.Context, d fleet.Deployment, targets []fleet.Target) error {
	if !d.DeletedAt.IsZero() {
		return nil
	}
	held, err := st.holds.Of(ctx, d)
	if err != nil {
		return err
	}
	if held.IsZero() {
		if err := st.writeDesired(ctx, &d, targets); err != nil {
			return fmt.Errorf("settling deployment %q: %w", d.Name, err)
		}
		if err := st.retryPending(ctx, d); err != nil {
			return err
		}
	}
	if err := st.advanceRuns(ctx, d, targets, held); err != nil {
		return fmt.Errorf("advancing the sync runs of deployment %q: %w", d.Name, err)
	}
	return nil
}

// writeDesired writes the desired states, into the store and into targets.
func (st *Reconciler) writeDesired(ctx context.Context, d *fleet.Deployment, targets []fleet.Target) error {
	w, err := st.choose(ctx, *d)
	if err != nil {
		return err
	}
	if d.Policy.Manual && st.resolved {
		if w.idle, err = st.idle(ctx, *d); err != nil {
			return err
		}
	}
	grant, err := st.grant(ctx, *d, targets)
	if err != nil {
		return err
	}
	granted, as := grant.ID != "", *d
	as.Policy, w.grant = grant.Applied(d.Policy), grant
	missing, sourceNotRead, wasAhead, refusal := false, false, false, ""
	for i, t := range targets {
		want, change, err := st.decideWhole(ctx, as, t, w)
		if err != nil {
			return err
		}
		sourceNotRead = sourceNotRead || Attached(t) && !Refused(t) && (rewound(t) || st.planner.restored(t)) && w.chosen && !st.resolved
		if _, known := w.forTarget(t); !known && Attached(t) && !Refused(t) {
			missing = true
		}
		if granted && Attached(t) && want.Digest != "" {
			why, err := st.planner.Refusal(ctx, st.tx, *d, want.Digest, grant.Limits)
			if err != nil {
				return err
			}
			if why != "" {
				refusal = why
				continue
			}
		}
		if refused, err := st.refuseKinds(ctx, &targets[i], want, change); err != nil {
			return err
		} else if refused {
			continue
		}
		if !change {
			if err := st.sameDesired(ctx, &targets[i], want); err != nil {
				return err
			}
			continue
		}
		if err := st.tx.Targets().SetDesired(ctx, d.TenantID, t.ID, want); err != nil {
			return err
		}
		wasAhead = wasAhead || st.planner.Ahead(t)
		want.Limits = t.Desired.Limits
		targets[i].Desired = want
	}
	if err := st.noteRefusal(ctx, d, granted, refusal); err != nil {
		return err
	}
	if wasAhead {
		if err := doubtDeclared(ctx, st.tx, *d); err != nil {
			return err
		}
	}
	if sourceNotRead || missing && !st.resolved && d.Varies() && !d.Pin.Active() {
		// A variant that nobody has rendered yet, or a target that is or may be ahead, and was held when
		// its source was last read: whoever reads the repository has to.
		reason := store.WakeVariantMissing
		if sourceNotRead {
			reason = store.WakeTargetAhead
		}
		return st.tx.Changes().WakeRepository(ctx, d.TenantID, d.RepositoryID, store.Wake{Reason: reason})
	}
	return nil
}

// decideWhole is decide with the hand-overs of the target.
func (st *Reconciler) decideWhole(ctx context.Context, d fleet.Deployment, t fleet.Target, w choice) (fleet.Desired, bool, error) {
	want, change := st.decide(d, t, w)
	if !change && (len(t.Desired.HandOvers) == 0 || !Attached(t) || st.planner.Ahead(t)) {
		return want, false, nil
	}
	handOvers, err := st.handOvers.Of(ctx, t, want)
	if err != nil {
		return want, false, fmt.Errorf("computing the hand-overs of target %s: %w", t.ID, err)
	}
	if !change && slices.EqualFunc(handOvers, t.Desired.HandOvers, fleet.HandOver.Equal) {
		return want, false, nil
	}
	if !change {
		want.Version = st.planner.Next(Newest(t))
	}
	want.HandOvers = handOvers
	return want, true, nil
}

// decide returns the desired state of a target, and whether it differs from the current one. Wrong deletions
// would start here, so it only uses complete bundles:
//
//	tombstone, detached, agent gone, label missing  unchanged
//	ahead of the server, or from before a restore   unchanged, until its source was read again and is
//	                                                complete, and for a manual one until a run requests
//	                                                it; then the next version, with its prune held
//	nothing chosen or rendered for it               unchanged
//	chosen under another source than is in force    bundle, namespace, and policy stay together unchanged
//	else                                            the next version, if anything differs
func (st *Reconciler) decide(d fleet.Deployment, t fleet.Target, w choice) (fleet.Desired, bool) {
	if !Attached(t) || Refused(t) {
		return t.Desired, false
	}
	ahead, restored := rewound(t), st.planner.restored(t)
	if (ahead || restored) && (!st.resolved || !w.chosen || w.idle || st.broken[d.ID][t.Variant]) {
		return t.Desired, false
	}
	bundle, ok := w.forTarget(t)
	if !ok || bundle.Digest == "" {
		return t.Desired, false
	}
	want := w.desired(d, t, bundle)
	if want.Digest == "" {
		return t.Desired, false
	}
	same := !ahead && alike(t.Desired, want)
	if same && !st.repairs(d, t) {
		as := t.Desired
		as.SourceRevision = want.SourceRevision
		return as, false
	}
	if same {
		want.Confirmed = t.Desired.Confirmed // for exactly this bundle
	}
	want.Version = st.planner.Next(Newest(t))
	// Held until the agent has marked its objects since the rewind: it may skip states in between.
	notTaken := t.Observed.Version.Compare(t.Desired.Version) < 0
	want.HoldPrune = ahead || restored || KeepsPruneHold(t)
	want.Consent = !want.HoldPrune && st.consented(d, t.Desired, want, notTaken)
	return want, true
}

// Attached reports whether a target is attached: only then does it get new states.
func Attached(t fleet.Target) bool {
	return !t.Desired.Tombstone && t.DetachedAt.IsZero() && t.AgentID != ""
}

// Refused reports whether the agent of a target lacks a label that its source needs.
func Refused(t fleet.Target) bool { return t.VariantError != "" }

// alike reports whether two desired states are equal for an agent. The rest of a policy only matters to the
// server, and the commit is only the origin of a bundle.
func alike(a, b fleet.Desired) bool {
	return a.Digest == b.Digest && a.Namespace == b.Namespace && a.Detached == b.Detached && a.Tombstone == b.Tombstone &&
		a.Policy.SameToAgent(b.Policy)
}

// rewound reports whether the agent of a target has a state that the server does not know.
func rewound(t fleet.Target) bool {
	order := t.Observed.Version.Compare(t.Desired.Version)
	return order > 0 || (order == 0 && (t.Observed.Sync == fleet.SyncRewound || otherBundle(t)))
}

// ahead reports whether the report of an agent is about a state that this database has not issued: a newer one,
// one with another bundle, or the end of a target that is not deleted.
func ahead(t fleet.Target, said fleet.Observed) bool {
	t.Observed = said
	return rewound(t) || said.Version == t.Desired.Version &&
		(said.Sync == fleet.SyncDeleted && !t.Desired.Tombstone || said.Sync == fleet.SyncDetached && !t.Desired.Detached)
}

// otherBundle reports whether an agent has another bundle than the one that was issued with the same version:
// it comes from a lost database.
func otherBundle(t fleet.Target) bool {
	return t.Observed.Sync == fleet.SyncSynced && t.Observed.Digest != "" && t.Desired.Digest != "" && t.Observed.Digest != t.Desired.Digest
}

// Ahead reports whether the agent of a target is ahead of the server, or may be.
func (s *Planner) Ahead(t fleet.Target) bool { return rewound(t) || s.restored(t) }

// restored reports whether the desired state of a target is from before the restore of a backup. Its agent may
// be ahead without having reported it, and every state of the new epoch is newer than what it has: so the
// target is handled as one that is ahead.
func (s *Planner) restored(t fleet.Target) bool {
	return t.Desired.Version != (fleet.Version{}) && t.Desired.Epoch < s.epoch
}

// Newest returns the highest version of a target that was ever seen: the next version must be higher even if
// the database is older than the cluster.
func Newest(t fleet.Target) fleet.Version {
	if t.Observed.Version.Compare(t.Desired.Version) > 0 {
		return t.Observed.Version
	}
	return t.Desired.Version
}

// highestGiven returns the highest version of a target that a server can have issued. A restored backup may be
// older than another restored one, so it uses the epoch of the database even if the target has no version of
// it.
func (s *Planner) highestGiven(t fleet.Target) fleet.Version {
	v := Newest(t)
	v.Epoch = max(v.Epoch, s.epoch)
	return v
}

// choice has the chosen bundles of a deployment, by variant.
type choice struct {
	chosen  bool                      // false: nothing is chosen, and targets do not change
	idle    bool                      // manual, without a run
	kept    bool                      // of a kept revision, for which nothing is rendered any more
	failed  map[string]string         // variants of a run that could not be rendered: nothing replaces them
	bundles map[string]fleet.Rendered // of which Commit and Digest count
	source  int64                     // Deployment.SourceRevision at the time of the choice
	grant   fleet.Grant               // zero if the environment belongs to the tenant
	// terminated means that the run that made the choice was terminated, see wish.stops.
	terminated bool
	stopped    map[fleet.TargetID]bool // targets that the terminating run still waits for
}

// forTarget returns the bundle of a target; false if it is not known yet.
func (w choice) forTarget(t fleet.Target) (fleet.Rendered, bool) {
	if !w.chosen {
		return fleet.Rendered{Digest: t.Desired.Digest, Commit: t.Desired.Commit}, true
	}
	bundle, ok := w.bundles[t.Variant]
	if !ok && w.kept && w.failed[t.Variant] == "" {
		bundle, ok = w.nearest(t)
	}
	return bundle, ok
}

// nearest returns the bundle of a target whose variant differs from the kept ones only in capabilities: its
// cluster may have been upgraded. It is the current bundle, if that was kept; otherwise the one that all share.
// If they differ, the bundle of another cluster would remove objects that this one needs.
func (w choice) nearest(t fleet.Target) (out fleet.Rendered, ok bool) {
	want, _, _ := strings.Cut(t.Variant, "@")
	differ := false
	for name, bundle := range w.bundles {
		switch base, _, _ := strings.Cut(name, "@"); {
		case base != want:
			continue
		case bundle.Digest == t.Desired.Digest:
			return bundle, true
		case ok && bundle.Digest != out.Digest:
			differ = true
		}
		out, ok = bundle, true
	}
	if differ {
		return fleet.Rendered{}, false
	}
	return out, ok
}

// choose returns the choice for d: the pinned revision; for a manual deployment without one, nothing; otherwise
// the newest render.
func (st *Reconciler) choose(ctx context.Context, d fleet.Deployment) (choice, error) {
	switch {
	case d.Pin.Active():
		revision, err := st.tx.Revisions().Get(ctx, d.TenantID, d.ID, d.Pin.Revision)
		if errors.Is(err, store.ErrNotFound) {
			return choice{}, nil // lost: never a reason for a change
		}
		if err != nil {
			return choice{}, err
		}
		w := choiceOfRevision(revision)
		w.failed, w.source = st.failed, d.Pin.SourceRevision
		w.terminated, w.stopped = d.Pin.TerminatedRun != 0, st.stopped
		return w, nil
	case d.Policy.Manual:
		return choice{}, nil
	case !d.Varies():
		return choice{chosen: true, bundles: map[string]fleet.Rendered{"": d.Rendered}, source: d.SourceRevision}, nil
	}
	variants, err := st.tx.Deployments().Variants(ctx, d.TenantID, d.ID)
	if err != nil {
		return choice{}, err
	}
	w := choice{chosen: true, bundles: make(map[string]fleet.Rendered, len(variants)), source: d.SourceRevision}
	for _, v := range variants {
		w.bundles[v.Name] = v.Rendered
	}
	return w, nil
}

func choiceOfRevision(r fleet.Revision) choice {
	w := choice{chosen: true, kept: true, bundles: make(map[string]fleet.Rendered, len(r.Bundles))}
	for variant, digest := range r.Bundles {
		w.bundles[variant] = fleet.Rendered{Commit: r.Commit, Digest: digest}
	}
	return w
}
