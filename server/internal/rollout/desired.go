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

// Reconcile gives every target of d what it shall be now, and moves its sync runs on. Nothing is
// written when nothing differs. It deletes nothing: tombstones are made elsewhere, on purpose, and
// are left alone here.
func (s *Planner) Reconcile(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return s.ReconcileTargets(ctx, tx, d, targets)
}

// ReconcileTargets is settle for some targets of d.
func (s *Planner) ReconcileTargets(ctx context.Context, tx store.Tx, d fleet.Deployment, targets []fleet.Target) error {
	return s.NewReconciler(tx).Reconcile(ctx, d, targets)
}

// Reconciler gives targets what they shall be, within one transaction, for one deployment or many.
type Reconciler struct {
	planner *Planner
	tx      store.Tx
	holds   *Suspensions
	// resolved says that the sources were read from Git for this very step, so that targets whose
	// agents are ahead of the server may go on.
	resolved bool
	// broken holds the variants, by deployment, whose newest revision cannot be used: targets that are
	// ahead of the server wait for one that can.
	broken map[fleet.DeploymentID]map[string]bool
	// failed says, by variant, why the run that is being started has no bundle for it.
	failed map[string]string
	// edits holds the deployments whose own edit, and not a new commit, has brought what is given out in
	// this step.
	edits map[fleet.DeploymentID]bool
	// handOvers knows what targets lose that other deployments want.
	handOvers *HandOvers
	// repair says that a sync was asked for, see repairs.
	repair bool
	// stopped holds the targets that a run still waits for which is being terminated.
	stopped map[fleet.TargetID]bool
}

// NewReconciler makes a reconciler for one transaction.
func (s *Planner) NewReconciler(tx store.Tx) *Reconciler {
	return &Reconciler{planner: s, tx: tx, holds: NewSuspensions(tx), broken: map[fleet.DeploymentID]map[string]bool{}, edits: map[fleet.DeploymentID]bool{}, handOvers: NewHandOvers(s, tx, nil)}
}

// NewResolvedReconciler is newSettler for a step whose sources were read from Git. scope is what is known of the other
// deployments of the commit; it may be nil.
func (s *Planner) NewResolvedReconciler(tx store.Tx, scope *CommitScope) *Reconciler {
	st := s.NewReconciler(tx)
	st.resolved, st.handOvers = true, NewHandOvers(s, tx, scope)
	return st
}

// SetBroken notes the variants of a deployment whose newest revision cannot be used.
func (st *Reconciler) SetBroken(id fleet.DeploymentID, variants map[string]bool) {
	st.broken[id] = variants
}

// SuspendedBy says why nothing new may be sent to the targets of d; "" when nothing holds it.
func (st *Reconciler) SuspendedBy(ctx context.Context, d fleet.Deployment) (string, error) {
	return st.holds.Of(ctx, d)
}

// RefreshHandOvers writes again what targets of a tenant hand over for the reasons that have changed.
func (st *Reconciler) RefreshHandOvers(ctx context.Context, tenant fleet.TenantID, changed func(fleet.HandOver) bool) error {
	return st.handOvers.Refresh(ctx, tenant, changed)
}

// Reconcile gives targets of d what they shall have now, and moves the sync runs of d on. Nothing is written when
// nothing differs.
func (st *Reconciler) Reconcile(ctx context.Context, d fleet.Deployment, targets []fleet.Target) error {
	if !d.DeletedAt.IsZero() {
		return nil
	}
	held, err := st.holds.Of(ctx, d)
	if err != nil {
		return err
	}
	if held == "" {
		if err := st.writeDesired(ctx, &d, targets); err != nil {
			return fmt.Errorf("settling deployment %q: %w", d.Name, err)
		}
		if err := st.retryPending(ctx, d); err != nil {
			return err
		}
	}
	if err := st.advanceRuns(ctx, d, targets, held); err != nil {
		return fmt.Errorf("moving the sync runs of deployment %q on: %w", d.Name, err)
	}
	return nil
}

// writeDesired writes what the targets shall be, into the store and into targets.
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
	missing, unread, wasBehind, refusal := false, false, false, ""
	for i, t := range targets {
		want, change, err := st.decideWhole(ctx, as, t, w)
		if err != nil {
			return err
		}
		unread = unread || Attached(t) && !Refused(t) && (rewound(t) || st.planner.restored(t)) && w.chosen && !st.resolved
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
		if !change {
			if err := st.sameDesired(ctx, &targets[i], want); err != nil {
				return err
			}
			continue
		}
		if err := st.tx.Targets().SetDesired(ctx, d.TenantID, t.ID, want); err != nil {
			return err
		}
		wasBehind = wasBehind || st.planner.Ahead(t)
		want.Limits = t.Desired.Limits
		targets[i].Desired = want
	}
	if err := st.noteRefusal(ctx, d, granted, refusal); err != nil {
		return err
	}
	if wasBehind {
		if err := doubtDeclared(ctx, st.tx, *d); err != nil {
			return err
		}
	}
	if unread || missing && !st.resolved && d.Varies() && !d.Pin.Active() {
		// A variant that nobody has rendered yet, or a target that is or may be ahead, and was held when
		// its source was last read: whoever reads the repository has to.
		return st.tx.Changes().RecordPush(ctx, d.TenantID, d.RepositoryID, "")
	}
	return nil
}

// decideWhole is decide with what the target hands over to others.
func (st *Reconciler) decideWhole(ctx context.Context, d fleet.Deployment, t fleet.Target, w choice) (fleet.Desired, bool, error) {
	want, change := st.decide(d, t, w)
	if !change && (len(t.Desired.HandOvers) == 0 || !Attached(t) || st.planner.Ahead(t)) {
		return want, false, nil
	}
	handOvers, err := st.handOvers.Of(ctx, t, want)
	if err != nil {
		return want, false, fmt.Errorf("finding out what target %s hands over: %w", t.ID, err)
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

// decide says what a target shall be, and whether that differs from what it is. It is where wrong
// deletions would begin, so it only ever names whole bundles:
//
//	tombstone, detached, agent gone, label missing  as it is
//	ahead of the server, or from before a restore   as it is, until its source was read anew and is
//	                                                whole, and for a manual one until a run asks for
//	                                                it; then the next version, with its prune held
//	nothing chosen or rendered for it               as it is
//	chosen under another source than is in force    bundle, namespace and policy stay together as they are
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
		want.Confirmed = t.Desired.Confirmed // for this very bundle
	}
	want.Version = st.planner.Next(Newest(t))
	// Held until the agent has marked what it holds since the rewind: it may skip states in between.
	notTaken := t.Observed.Version.Compare(t.Desired.Version) < 0
	want.HoldPrune = ahead || restored || KeepsPruneHold(t)
	want.Consent = !want.HoldPrune && st.consented(d, t.Desired, want, notTaken)
	return want, true
}

// Attached reports whether a target belongs where it is: only then is it given anything new.
func Attached(t fleet.Target) bool {
	return !t.Desired.Tombstone && t.DetachedAt.IsZero() && t.AgentID != ""
}

// Refused reports whether the agent of a target lacks a label that its source needs.
func Refused(t fleet.Target) bool { return t.VariantError != "" }

// alike reports whether two desired states are the same to an agent. The rest of a policy is the
// server's own business, and the commit only says where a bundle came from first.
func alike(a, b fleet.Desired) bool {
	return a.Digest == b.Digest && a.Namespace == b.Namespace && a.Detached == b.Detached && a.Tombstone == b.Tombstone &&
		a.Policy.SameToAgent(b.Policy)
}

// rewound reports whether the agent of a target has something that the server knows nothing of.
func rewound(t fleet.Target) bool {
	order := t.Observed.Version.Compare(t.Desired.Version)
	return order > 0 || (order == 0 && (t.Observed.Sync == fleet.SyncRewound || otherBundle(t)))
}

// ahead reports whether what an agent says of a target is of a state that this database has not given
// out: a newer one, one with another bundle, or the end of a target that is to live.
func ahead(t fleet.Target, said fleet.Observed) bool {
	t.Observed = said
	return rewound(t) || said.Version == t.Desired.Version &&
		(said.Sync == fleet.SyncDeleted && !t.Desired.Tombstone || said.Sync == fleet.SyncDetached && !t.Desired.Detached)
}

// otherBundle reports whether an agent holds another bundle than was given out under the same version: by a
// database that is no more.
func otherBundle(t fleet.Target) bool {
	return t.Observed.Sync == fleet.SyncSynced && t.Observed.Digest != "" && t.Desired.Digest != "" && t.Observed.Digest != t.Desired.Digest
}

// Ahead reports whether the agent of a target is ahead of the server, or may be.
func (s *Planner) Ahead(t fleet.Target) bool { return rewound(t) || s.restored(t) }

// restored reports whether what is desired of a target is from before a backup was restored. Its agent
// may be ahead and not have said so yet, and whatever the new epoch gives it is newer than what it has:
// so the target goes on as one that is ahead does.
func (s *Planner) restored(t fleet.Target) bool {
	return t.Desired.Version != (fleet.Version{}) && t.Desired.Epoch < s.epoch
}

// Newest is the highest version of a target that anybody has seen: what comes next has to be
// higher even when the database is older than the cluster.
func Newest(t fleet.Target) fleet.Version {
	if t.Observed.Version.Compare(t.Desired.Version) > 0 {
		return t.Observed.Version
	}
	return t.Desired.Version
}

// highestGiven is the highest version of a target that a server can have given out. A restored backup may be
// older than another restored one, so it counts the epoch of the database even if the target has no version of it.
func (s *Planner) highestGiven(t fleet.Target) fleet.Version {
	v := Newest(t)
	v.Epoch = max(v.Epoch, s.epoch)
	return v
}

// choice is what the targets of a deployment shall be, by variant.
type choice struct {
	chosen  bool                      // false: nothing is chosen, and each keeps what it has
	idle    bool                      // manual, and no run asks for anything
	kept    bool                      // it is of a kept revision, for which nothing is rendered any more
	failed  map[string]string         // variants of a run that could not be rendered: nothing stands in for them
	bundles map[string]fleet.Rendered // of which Commit and Digest count
	source  int64                     // Deployment.SourceRevision when it was chosen
	grant   fleet.Grant               // zero when the environment is the tenant's own
	// terminated says that the run which has chosen it was terminated, see wish.stops.
	terminated bool
	stopped    map[fleet.TargetID]bool // targets that the run still waits for as it is being terminated
}

// forTarget returns what a target shall be; false when that is not known yet.
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

// nearest finds what a target is given whose variant differs from the kept ones in what clusters are capable
// of only: its cluster may have been upgraded since. That is what it has, if that was kept; else what all of
// them share. Where they differ, one of another cluster would take objects away that this one needs.
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

// choose reads what is chosen for d: the pinned revision; for a manual deployment without one, nothing;
// else the newest that was rendered.
func (st *Reconciler) choose(ctx context.Context, d fleet.Deployment) (choice, error) {
	switch {
	case d.Pin.Active():
		revision, err := st.tx.Revisions().Get(ctx, d.TenantID, d.ID, d.Pin.Revision)
		if errors.Is(err, store.ErrNotFound) {
			return choice{}, nil // lost: never a reason to change anything
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
