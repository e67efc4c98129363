package reposync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// summary returns the problem of the source, for the deployment as a whole.
func (o outcome) summary() string {
	if o.problem != "" {
		return o.problem
	}
	for _, p := range o.parts {
		if p.evaluation.problem == "" {
			continue
		}
		if p.agent == "" {
			return p.evaluation.problem
		}
		return fmt.Sprintf("for agent %q: %s", p.agent, p.evaluation.problem)
	}
	return ""
}

// needed reports whether anything would be written.
func (o outcome) needed() bool {
	if o.pending.needed() || o.skipped {
		return o.pending.needed()
	}
	return o.summary() != rollout.SourceError(o.deployment) || o.detected() != o.deployment.Detected || slices.ContainsFunc(o.parts, func(p part) bool {
		return p.packed != nil || (p.agent != "" && p.evaluation.problem != p.Unit.problem)
	})
}

// usable reports whether targets can get anything.
func (o outcome) usable() bool {
	return o.problem == "" && (len(o.parts) == 0 || slices.ContainsFunc(o.parts, func(p part) bool { return p.evaluation.problem == "" }))
}

func (o outcome) bytes() int {
	n := 0
	for _, p := range o.parts {
		if p.packed != nil {
			n += len(p.packed.content)
		}
	}
	if o.pending != nil {
		n += o.pending.bytes()
	}
	return n
}

// errOvertaken rolls back a transaction in which an outcome was overtaken.
var errOvertaken = errors.New("a deployment was changed concurrently")

// commit writes the results of one commit for several deployments in one transaction, so that their targets
// change together. Overtaken ones are omitted, and the worker wakes for them; with whole set, all are omitted
// then. scope has what is known of the other deployments of the commit.
func (w *worker) commit(ctx context.Context, changed []outcome, scope *rollout.CommitScope, due wakeup, whole bool) (overtaken bool, err error) {
	if len(changed) == 0 {
		return false, nil
	}
	err = w.svc.store.Update(ctx, func(tx store.Tx) error {
		overtaken = false // from a previous attempt
		overtaken, err = w.commitAll(ctx, tx, changed, scope)
		if err == nil && overtaken && whole {
			return errOvertaken
		}
		return err
	})
	if overtaken {
		again := due
		again.check = true
		w.wake(again)
	}
	if errors.Is(err, errOvertaken) {
		return true, nil
	}
	if err != nil {
		return overtaken, err
	}
	if due.pushed && w.svc.cfg.Observe != nil {
		w.svc.cfg.Observe(w.svc.cfg.Now().Sub(due.at))
	}
	for _, o := range changed {
		w.rememberEvaluations(o)
	}
	return overtaken, nil
}

// commitAll records the renders of all deployments before any target is written: only then is it known which
// objects one of them loses and another one wants.
func (w *worker) commitAll(ctx context.Context, tx store.Tx, changed []outcome, scope *rollout.CommitScope) (overtaken bool, err error) {
	if scope == nil {
		scope = &rollout.CommitScope{}
	}
	st := w.svc.planner.NewResolvedReconciler(tx, scope)
	noteNewest(scope, changed)
	var usable []fleet.Deployment
	written := map[fleet.DeploymentID]bool{}
	for _, o := range changed {
		d, applies, err := w.recordOne(ctx, tx, st, o)
		if err != nil {
			return false, fmt.Errorf("recording a revision of deployment %q: %w", o.deployment.Name, err)
		}
		overtaken = overtaken || !applies
		written[o.deployment.ID] = true
		if d.ID != "" {
			usable = append(usable, d)
		}
	}
	for _, d := range usable {
		targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
		if err != nil {
			return false, err
		}
		if err := st.Reconcile(ctx, d, targets); err != nil {
			return false, err
		}
	}
	return overtaken, st.RefreshHandOvers(ctx, w.tenant, func(h fleet.HandOver) bool { return written[h.To] })
}

// recordOne records the result of a deployment, and reports whether it still applies. A deleted one needs
// nothing. It returns the deployment if its targets can get anything.
func (w *worker) recordOne(ctx context.Context, tx store.Tx, st *rollout.Reconciler, o outcome) (usable fleet.Deployment, applies bool, err error) {
	promoted, applies, done, err := w.commitPending(ctx, tx, st, o)
	if err != nil || done {
		return promoted, applies, err
	}
	d, same, err := w.current(ctx, tx, o.deployment)
	if err != nil || !same {
		return fleet.Deployment{}, d.ID == "" || !d.DeletedAt.IsZero(), err
	}
	if overtaken, err := w.overtaken(ctx, tx, d, o); err != nil || overtaken {
		return fleet.Deployment{}, false, err
	}
	whole, err := w.record(ctx, tx, st, &d, o)
	if err != nil || !whole {
		return fleet.Deployment{}, true, err // the running state is not changed; not even targets ahead of the server
	}
	return d, true, nil
}

// record writes the result of a deployment, and reports whether its targets can get anything.
func (w *worker) record(ctx context.Context, tx store.Tx, st *rollout.Reconciler, d *fleet.Deployment, o outcome) (whole bool, err error) {
	if whole, err = w.commitParts(ctx, tx, st, d, o); err != nil {
		return false, err
	}
	if err := w.commitProblem(ctx, tx, d, o); err != nil {
		return false, err
	}
	if err := tx.Deployments().SetDetected(ctx, d.TenantID, d.ID, o.detected()); err != nil {
		return false, err
	}
	return whole, nil
}

// current reads a deployment again, and reports whether the result still applies: it was neither deleted nor
// edited concurrently. An edit wakes the worker again.
func (w *worker) current(ctx context.Context, tx store.Tx, was fleet.Deployment) (fleet.Deployment, bool, error) {
	d, err := tx.Deployments().Get(ctx, was.TenantID, was.ID)
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Deployment{}, false, nil
	}
	same := err == nil && d.DeletedAt.IsZero() && d.RepositoryID == w.id && d.SourceRevision == was.SourceRevision && d.Source.Equal(was.Source) &&
		d.Namespace == was.Namespace && d.Policy.AllowEmpty == was.Policy.AllowEmpty
	return d, same, err
}

// overtaken reports whether another replica has recorded a revision since a deployment was read: it may have
// read a newer commit than this one, which then evaluates again.
func (w *worker) overtaken(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome) (bool, error) {
	same := func(a, b fleet.Rendered) bool { return a.Commit == b.Commit && a.Key == b.Key && a.Digest == b.Digest }
	overtaken := !same(d.Rendered, o.deployment.Rendered)
	if !overtaken && d.Varies() {
		// Variants of one commit may be rendered one after another, and a volatile one differently.
		variants, err := tx.Deployments().Variants(ctx, d.TenantID, d.ID)
		if err != nil {
			return false, err
		}
		now := make(map[string]fleet.Rendered, len(variants))
		for _, v := range variants {
			now[v.Name] = v.Rendered
		}
		overtaken = slices.ContainsFunc(o.parts, func(p part) bool { return p.agent != "" && !same(now[p.Variant], p.Was) })
	}
	return overtaken, nil
}

// commitParts records renders. It reports whether targets can get anything.
func (w *worker) commitParts(ctx context.Context, tx store.Tx, st *rollout.Reconciler, d *fleet.Deployment, o outcome) (whole bool, err error) {
	var rendered, objects int
	bundles := map[string]string{}
	broken := map[string]bool{}
	for _, p := range o.parts {
		if err := w.putBundle(ctx, tx, d.TenantID, p.packed); err != nil {
			return false, err
		}
		digest := p.digest
		if p.evaluation.problem != "" {
			broken[p.Variant], digest = true, p.Was.Digest
		}
		if digest != "" {
			bundles[p.Variant] = digest
		}
		if p.packed != nil {
			rendered, objects = rendered+1, objects+p.packed.objects
		}
		if err := w.commitVariant(ctx, tx, *d, o, p); err != nil {
			return false, err
		}
	}
	st.SetBroken(d.ID, broken)
	if err := w.dropVariants(ctx, tx, *d, o); err != nil {
		return false, err
	}
	if rendered > 0 {
		if err := w.commitRendered(ctx, tx, d, o, bundles, objects); err != nil {
			return false, err
		}
	}
	return o.usable(), nil
}

func (w *worker) putBundle(ctx context.Context, tx store.Tx, tenant fleet.TenantID, p *packed) error {
	if p == nil {
		return nil
	}
	return tx.Bundles().Put(ctx, fleet.Bundle{
		TenantID: tenant, Digest: p.digest, Content: p.content, Size: p.size, Objects: p.objects, CreatedAt: w.svc.cfg.Now(),
	})
}

// commitVariant records a variant if anything is new.
func (w *worker) commitVariant(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome, p part) error {
	if p.agent == "" || (p.packed == nil && p.evaluation.problem == p.Unit.problem) {
		return nil
	}
	v := fleet.Variant{Name: p.Variant, Rendered: p.Was, Reason: p.reason, Error: p.evaluation.problem}
	if p.packed != nil {
		v.Rendered = fleet.Rendered{
			Commit: o.commit, Key: p.key, Digest: p.digest, At: w.svc.cfg.Now(), Reads: p.packed.reads, Volatile: p.packed.volatile,
		}
	}
	return tx.Deployments().PutVariant(ctx, d.TenantID, d.ID, v)
}

// dropVariants deletes the variants that no agent has any more. A deployment with its own digest has none. An
// unusable commit deletes none.
func (w *worker) dropVariants(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome) error {
	if !o.usable() || (!d.Varies() && d.Rendered.Digest != "") {
		return nil
	}
	var names []string
	for _, p := range o.parts {
		if p.agent != "" {
			names = append(names, p.Variant)
		}
	}
	return tx.Deployments().KeepVariants(ctx, d.TenantID, d.ID, names)
}

func (w *worker) commitRendered(ctx context.Context, tx store.Tx, d *fleet.Deployment, o outcome, bundles map[string]string, objects int) error {
	was := d.Rendered
	d.Rendered = fleet.Rendered{Commit: o.commit, At: w.svc.cfg.Now(), Volatile: o.volatile()}
	if !d.Varies() {
		d.Rendered.Key, d.Rendered.Digest, d.Rendered.Reads = o.parts[0].key, o.parts[0].digest, o.parts[0].packed.reads
	}
	if err := tx.Deployments().SetRendered(ctx, d.TenantID, d.ID, d.Rendered); err != nil {
		return err
	}
	d.SourceError = ""
	if _, err := w.svc.planner.KeepRevision(ctx, tx, *d, o.commit, bundles); err != nil {
		return err
	}
	if d.Rendered.Digest != "" && d.Rendered.Digest == was.Digest {
		return nil
	}
	w.log.Info("a revision was rendered", obs.KeyDeployment, d.Name, obs.KeyCommit, o.commit, "objects", objects, "variants", len(o.parts))
	err := w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonRevisionRendered, Deployment: d.Name,
		Message: fmt.Sprintf("commit %.12s: %s", o.commit, wording.Count(objects, "object")),
	})
	if err != nil {
		return err
	}
	return w.tellNotes(ctx, tx, *d, o)
}

// volatile reports whether any part is volatile.
func (o outcome) volatile() bool {
	return slices.ContainsFunc(o.parts, func(p part) bool { return p.packed != nil && p.packed.volatile || p.packed == nil && p.Was.Volatile })
}

// maxNotes limits the events of one revision: a chart may have very many hooks.
const maxNotes = 10

// tellNotes writes the notes of a revision as events, once for all variants.
func (w *worker) tellNotes(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome) error {
	var notes []string
	for _, p := range o.parts {
		if p.packed == nil {
			continue
		}
		if p.packed.volatile {
			notes = append(notes, "the chart uses time or randomness: it is rendered again only when its input changes")
		}
		notes = append(notes, p.packed.notes...)
	}
	slices.Sort(notes)
	notes = slices.Compact(notes)
	if more := len(notes) - maxNotes; more > 0 {
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more notes", more))
	}
	for _, note := range notes {
		err := w.svc.tell(ctx, tx, fleet.Event{
			TenantID: d.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonRenderNote, Deployment: d.Name, Message: fmt.Sprintf("commit %.12s: %s", o.commit, note),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commitProblem records the problem of the source, or its end.
func (w *worker) commitProblem(ctx context.Context, tx store.Tx, d *fleet.Deployment, o outcome) error {
	problem := o.summary()
	if rollout.SourceError(*d) == problem {
		return nil
	}
	reason := o.reason()
	if err := tx.Deployments().SetSourceError(ctx, d.TenantID, d.ID, reason, problem, w.svc.cfg.Now()); err != nil {
		return err
	}
	d.SourceReason, d.SourceError = reason, problem
	if problem == "" {
		return nil
	}
	w.log.Info("a revision cannot be used", obs.KeyDeployment, d.Name, obs.KeyCommit, o.commit, obs.KeyUserError, true, obs.KeyReason, problem)
	return w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventWarning, Reason: reason, Deployment: d.Name, Message: problem,
	})
}
