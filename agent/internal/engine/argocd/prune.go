package argocd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
)

// annotationLimit bounds an annotation; the annotations of an object have 256 KiB together.
const annotationLimit = 80 << 10

// prune decides on the objects that have left the source, and has Argo CD delete those that may be deleted. It returns a
// status for each. desired counts the objects of the source, and unsettled those of them that are not in place.
func (t *target) prune(ctx context.Context, app *application, last attempt, desired, unsettled int) ([]fleet.ObjectStatus, error) {
	var gone []fleet.ObjectRef
	for _, r := range app.objects() {
		if r.RequiresPruning {
			gone = append(gone, r.ref())
		}
	}
	t.prunedEvents(gone)
	holds, unreadable := app.held()
	unlisted := t.unlisted(app, holds)
	if len(gone) == 0 {
		t.handOverEvents(app.apiServer(), nil)
		return unlisted, t.storeHolds(ctx, app, nil, holds)
	}
	if unreadable {
		for _, ref := range gone {
			holds[ref.String()] = inventory.HeldAfterRecovery
		}
	}
	managed := app.managed()
	for _, ref := range gone {
		// Argo CD lists what an earlier Application left when the project allows its namespace and kind, which may be late.
		if name := ref.String(); holds[name] == "" && !managed.has(name) {
			holds[name] = inventory.HeldLeftover
		}
	}
	missed := 0
	for _, ref := range gone {
		if holds[ref.String()].OutsideChange() {
			missed++ // not part of this change
		}
	}
	state := t.work.State
	policy := inventory.Policy{
		Whole: true, Prune: state.Policy.Prune, AllowEmpty: state.Policy.AllowEmpty, Hold: state.HoldPrune || unreadable,
		Unsettled: unsettled, Pending: t.engine.isPending(), Consent: state.Consent, Limit: state.Policy.PruneLimit,
		Total: max(0, app.base()-missed), Desired: desired, Gone: len(gone) - missed, Confirmed: state.Confirmed,
	}
	if state.Policy.DryRun {
		policy.Prune = false
	}
	out, remove, holds := t.decide(app, inventory.NewPlan(policy), gone, holds)
	remove = t.holdNamespaces(app, out, remove)
	t.handOverEvents(app.apiServer(), out)
	out = append(out, unlisted...)
	// The holds are written before the first deletion: the rest of a change that was held never looks like a small change.
	if err := t.storeHolds(ctx, app, gone, holds); err != nil || len(remove) == 0 || app.busy() {
		return out, err
	}
	if last.failed && last.pruning && !t.retryDue() {
		return out, nil
	}
	if last.pruning && !last.failed && !last.succeeded {
		return out, nil // Argo CD has not compared since, and may have deleted them already
	}
	app, _, _ = t.engine.cache.application(app.raw.GetName())
	if app == nil || app.busy() || !t.current(app) {
		return out, nil
	}
	return out, t.startPrune(ctx, app, remove)
}

// holdNamespaces keeps Namespaces while something of this agent stays in them, which would be deleted with them.
func (t *target) holdNamespaces(app *application, out []fleet.ObjectStatus, remove []fleet.ObjectRef) []fleet.ObjectRef {
	occupied := t.occupants(app, remove, nil)
	for i, o := range out {
		if occupant := occupied[o.ObjectRef.String()]; occupant != "" {
			out[i].Sync, out[i].Reason, out[i].Message = fleet.SyncHeld, fleet.ReasonNotEmpty, "is not in the source any more; held: "+occupant
		}
	}
	return slices.DeleteFunc(remove, func(ref fleet.ObjectRef) bool { return occupied[ref.String()] != "" })
}

// decide describes each object that has left, selects those to delete, and returns the holds from now on.
func (t *target) decide(app *application, plan inventory.Plan, gone []fleet.ObjectRef, holds map[string]inventory.Hold) (out []fleet.ObjectStatus, remove []fleet.ObjectRef, next map[string]inventory.Hold) {
	const left = "is not in the source any more"
	next = map[string]inventory.Hold{}
	for _, ref := range gone {
		o := fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSynced, Health: fleet.HealthUnknown}
		name := ref.String()
		if hold := holds[name]; hold != "" {
			next[name] = hold
		}
		if why := t.keeps(app, ref); !why.IsZero() {
			o.Reason, o.Message = why.Reason, left+"; kept: "+why.Message
			if why.Reason == fleet.ReasonKindNotAllowed {
				next[name] = cmp.Or(next[name], inventory.HeldByKindFilter)
			}
			if why.Reason == fleet.ReasonHandOverPending {
				if o.Sync = t.handOverState(app, name); o.Sync == fleet.SyncHeld {
					o.Message = left + "; held: " + why.Message
				}
			}
			out = append(out, o)
			continue
		}
		decision := plan.Decide(ref, holds[name])
		if decision.Hold != "" && next[name] == "" {
			next[name] = decision.Hold
		}
		o.Reason, o.Message = decision.Cause.Reason, left+"; kept: "+decision.Cause.Message
		switch {
		case decision.Cause.IsZero():
			o.Sync, o.Reason, o.Message = fleet.SyncSyncing, fleet.ReasonPruning, left
			remove = append(remove, ref)
		case decision.Confirmable:
			o.Sync, o.Message = fleet.SyncHeld, left+"; held: "+decision.Cause.Message
		case decision.Waiting:
			o.Sync = fleet.SyncSyncing
		}
		out = append(out, o)
	}
	return out, remove, next
}

// keeps returns why an object stays whatever the plan says; zero when the plan decides.
func (t *target) keeps(app *application, ref fleet.ObjectRef) fleet.Cause {
	s := t.engine.config()
	name := ref.String()
	if slices.Contains(app.list(annotationKept), name) {
		return fleet.Cause{Reason: fleet.ReasonPruneDisabled, Message: "an annotation of the object keeps it"}
	}
	if t.work.Source != nil && slices.Contains(t.work.Source.Objects, name) {
		return fleet.Cause{Reason: fleet.ReasonPruneBlocked, Message: "the server rendered it from this revision, and Argo CD did not"}
	}
	if why := s.kinds.Refusal(ref); why != "" {
		return fleet.Cause{Reason: fleet.ReasonKindNotAllowed, Message: why}
	}
	if app.environment() == "" { // scope and policy are about the cluster of the agent
		if why := s.keeps(ref); !why.IsZero() {
			return why
		}
	}
	if limits := t.work.State.Limits; !limits.Allows(ref, ref.Namespace != "") {
		return fleet.Cause{Reason: fleet.ReasonGrantViolation, Message: limits.Refusal(ref, ref.Namespace != "")}
	}
	return t.handOver(app, name)
}

// keeps returns why the owner of the cluster, or the scope of the agent, does not allow a deletion; zero when they do.
func (s settings) keeps(ref fleet.ObjectRef) fleet.Cause {
	if why := s.policy.RefuseDeletion(); !why.IsZero() {
		return why
	}
	if why := s.policy.Refusal(ref, ref.Namespace != ""); !why.IsZero() {
		return why
	}
	if s.scope == fleet.ScopeNamespaced && !slices.Contains(s.namespaces, ref.Namespace) {
		return fleet.Cause{Reason: fleet.ReasonOutsideScope, Message: "this agent is limited to other namespaces"}
	}
	return fleet.Cause{}
}

// remainingHolds returns the holds from now on. Holds of objects that are back in the source, or gone, end. An object that a
// kind filter holds may exist although Argo CD does not list it: Argo CD sees only what its project allows, and may not have
// seen a wider project yet. Such a hold ends when a user has confirmed the deletion of the object and the filter allows it.
func (t *target) remainingHolds(app *application, gone []fleet.ObjectRef, holds map[string]inventory.Hold) map[string]inventory.Hold {
	keep := map[string]inventory.Hold{}
	for _, ref := range gone {
		if hold := holds[ref.String()]; hold != "" {
			keep[ref.String()] = hold
		}
	}
	before, _ := app.held()
	for name, hold := range before {
		confirmed := slices.Contains(t.work.State.Confirmed, name) && t.engine.config().kinds.Refusal(objectOf(name)) == ""
		if hold == inventory.HeldByKindFilter && !confirmed && !slices.Contains(t.work.Source.Objects, name) {
			keep[name] = hold
		}
	}
	return keep
}

// storeHolds writes the holds if they have changed.
func (t *target) storeHolds(ctx context.Context, app *application, gone []fleet.ObjectRef, holds map[string]inventory.Hold) error {
	text := holdsText(t.remainingHolds(app, gone, holds))
	if text == app.annotation(annotationHeld) {
		return nil
	}
	if err := t.annotate(ctx, app, map[string]string{annotationHeld: text}); err != nil {
		return fmt.Errorf("writing the holds of the Application: %w", err)
	}
	return nil
}

// holdsText returns the annotation for holds.
func holdsText(holds map[string]inventory.Hold) string {
	if len(holds) == 0 {
		return ""
	}
	text := jsonText(holds)
	if len(text) > annotationLimit {
		return holdEverything
	}
	return text
}

// holdEverything cannot be read as a list of holds, so that every object is held that the next comparison does not find in the
// source.
const holdEverything = "everything"

// startPrune requests a sync that deletes exactly these objects. It names source and revision, so that a later change of
// the spec cannot change its meaning: an object that is in that revision is not deleted. The write fails if somebody has
// changed the Application since the decision.
func (t *target) startPrune(ctx context.Context, app *application, remove []fleet.ObjectRef) error {
	err := t.request(ctx, app, &syncOperation{
		Revision: t.work.State.Commit, Source: sourceOf(*t.work), Prune: true, Resources: resourcesOf(remove), SyncOptions: []string{propagation(t.work.State.Policy)},
	}, "prune")
	if err != nil {
		return err
	}
	for _, ref := range remove {
		t.pruned[ref.String()] = true
	}
	t.engine.log.Info("pruning", obs.KeyTarget, string(t.id), obs.KeyDeployment, t.work.Deployment, "objects", len(remove))
	return nil
}

// syncAll requests a sync. Argo CD never repeats one that it has given up.
func (t *target) syncAll(ctx context.Context, app *application) error {
	if t.work.State.Policy.DryRun {
		return nil
	}
	return t.request(ctx, app, &syncOperation{
		Revision: t.work.State.Commit, Source: sourceOf(*t.work), SyncOptions: syncOptions(t.work.State.Policy),
	}, "retry")
}

// retryDue reports whether a failed operation may be repeated now. Otherwise it plans the pass that may.
func (t *target) retryDue() bool {
	now := time.Now()
	if t.syncDue.IsZero() {
		t.syncDue = now.Add(t.syncs.NextJittered(t.engine.timing.syncFirst, t.engine.timing.syncMax))
	}
	if now.Before(t.syncDue) {
		t.at(t.syncDue)
		return false
	}
	t.syncDue = time.Time{}
	return true
}

// infoOperation is the name of the information that marks an operation of this engine.
const infoOperation = "kedge.dev/operation"

// request writes an operation into an Application that has none.
func (t *target) request(ctx context.Context, app *application, op *syncOperation, what string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&operation{
		Info:        []info{{infoOperation, what + " " + versionText(t.work.State.Version)}},
		InitiatedBy: initiator{Username: managedBy}, Sync: op,
	})
	if err != nil {
		return fmt.Errorf("encoding an operation: %w", err)
	}
	next := app.raw.DeepCopy()
	next.Object["operation"] = content
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return fmt.Errorf("requesting a sync (%s): %w", what, err)
	}
	t.engine.cache.stored(0, written)
	return nil
}

func resourcesOf(refs []fleet.ObjectRef) []syncResource {
	out := make([]syncResource, 0, len(refs))
	for _, ref := range refs {
		out = append(out, syncResource{Group: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	return out
}

// prunedEvents reports objects that were given to Argo CD for deletion and are not listed any more.
func (t *target) prunedEvents(gone []fleet.ObjectRef) {
	for name := range t.pruned {
		if !slices.ContainsFunc(gone, func(ref fleet.ObjectRef) bool { return ref.String() == name }) {
			delete(t.pruned, name)
			t.objectEvent(fleet.EventNormal, fleet.ReasonPruned, name, "was deleted by Argo CD")
		}
	}
}
