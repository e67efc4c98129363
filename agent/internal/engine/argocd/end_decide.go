package argocd

import (
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// endDecision is what becomes of the objects of a target that is deleted. Objects that others take over are in no list.
type endDecision struct {
	remove []fleet.ObjectRef
	held   []fleet.ObjectStatus // they stay until their deletion is confirmed, and so does the Application
	keep   []fleet.ObjectStatus // they stay, and are not managed any more when the Application is gone
}

// decideEnd decides on every object of a target that is deleted.
func (t *target) decideEnd(app *application) (out endDecision) {
	state := t.work.State
	policy := inventory.Policy{
		Whole: true, Prune: true, AllowEmpty: true, Tombstone: true, HoldProtected: state.HoldProtected,
		Consent: state.Consent, Hold: state.HoldPrune, Confirmed: state.Confirmed,
	}
	ownPlan := inventory.NewPlan(policy)
	policy.Consent = false // of the deletion does not include what an earlier Application left, which nobody has been shown
	leftPlan := inventory.NewPlan(policy)
	holds, unreadable := app.held()
	managed := app.managed()
	for _, r := range app.objects() {
		ref := r.ref()
		plan, hold := ownPlan, holds[ref.String()]
		switch {
		case r.RequiresPruning && unreadable:
			plan, hold = leftPlan, inventory.HeldAfterRecovery
		case r.RequiresPruning && hold == "" && len(managed) > 0 && !managed.has(ref.String()), hold == inventory.HeldLeftover:
			plan, hold = leftPlan, inventory.HeldLeftover
		}
		why, held := t.keeps(app, ref), false
		if why.IsZero() {
			decision := plan.Decide(ref, hold)
			why, held = decision.Cause, state.HoldProtected && decision.Confirmable && !decision.Protected
		}
		if isDefinition(ref) && (held || why.IsZero()) {
			why, held = fleet.Cause{Reason: fleet.ReasonProtectedKind, Message: "Argo CD never deletes a CustomResourceDefinition: delete it with kubectl"}, false
		}
		status := fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncDetached, Health: fleet.HealthUnknown, Reason: why.Reason, Message: why.Message}
		switch {
		case why.IsZero():
			out.remove = append(out.remove, ref)
		case why.Reason == fleet.ReasonHandOverPending:
		case held:
			out.held = append(out.held, heldAtEnd(ref, why))
		default:
			out.keep = append(out.keep, status)
		}
	}
	for _, o := range t.unlisted(app, holds) {
		o.Sync, o.Message = fleet.SyncDetached, t.engine.config().kinds.Refusal(o.ObjectRef)
		out.keep = append(out.keep, o)
	}
	t.holdOccupied(app, &out)
	return out
}

func isDefinition(ref fleet.ObjectRef) bool {
	return ref.Kind == "CustomResourceDefinition" && ref.Group == "apiextensions.k8s.io"
}

func heldAtEnd(ref fleet.ObjectRef, why fleet.Cause) fleet.ObjectStatus {
	return fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncHeld, Health: fleet.HealthUnknown, Reason: why.Reason, Message: "its deployment is deleted; held: " + why.Message}
}

// holdOccupied keeps a confirmed Namespace while something of this agent stays in it, which would be deleted with it.
func (t *target) holdOccupied(app *application, end *endDecision) {
	occupied := t.occupants(app, end.remove, end.keep)
	end.remove = slices.DeleteFunc(end.remove, func(ref fleet.ObjectRef) bool {
		occupant := occupied[ref.String()]
		if occupant != "" {
			end.held = append(end.held, heldAtEnd(ref, fleet.Cause{Reason: fleet.ReasonNotEmpty, Message: occupant}))
		}
		return occupant != ""
	})
}

// occupants returns the Namespaces to remove in which something of this agent stays, and says what.
func (t *target) occupants(app *application, remove []fleet.ObjectRef, keep []fleet.ObjectStatus) map[string]string {
	going, out := map[string]bool{}, map[string]string{}
	for _, ref := range remove {
		going[ref.String()] = true
	}
	for _, ref := range remove {
		if ref.Kind == "Namespace" && ref.Group == "" {
			out[ref.String()] = t.occupant(app, going, keep, ref.Name)
		}
	}
	return out
}

// occupant says what of this agent stays in a namespace; "" if there is nothing.
func (t *target) occupant(app *application, going map[string]bool, keep []fleet.ObjectStatus, namespace string) string {
	for _, r := range app.objects() {
		if r.Namespace == namespace && !going[r.ref().String()] {
			return r.ref().String() + keptInIt
		}
	}
	for _, o := range keep {
		if o.Namespace == namespace {
			return o.String() + keptInIt
		}
	}
	for _, name := range app.list(annotationKept) { // Argo CD may not list it now
		if objectOf(name).Namespace == namespace {
			return name + keptInIt
		}
	}
	t.waitsForOthers.Store(true) // before the Applications of the others are read
	for _, other := range t.engine.cache.others(app) {
		if other.apiServer() == app.apiServer() && slices.Contains(other.list(annotationNamespaces), namespace) {
			return other.has(namespace, app.tenant())
		}
	}
	return ""
}

const keptInIt = " is kept in it"

// has says what the Application has in a namespace. Deployments of other tenants are not named.
func (a *application) has(namespace, tenant string) string {
	if a.tenant() != tenant {
		return "a deployment of another tenant has objects in it"
	}
	for _, r := range a.objects() {
		if r.Namespace == namespace {
			return fmt.Sprintf("deployment %s has %s in it", a.annotation(annotationDeployment), r.ref())
		}
	}
	return fmt.Sprintf("deployment %s has objects in it", a.annotation(annotationDeployment))
}

// awaitConfirmation describes a target that ends after a user has confirmed deletions.
func (t *target) awaitConfirmation(app *application, end endDecision) (out outcome, wait bool) {
	if len(end.held) == 0 {
		return outcome{}, false
	}
	var held []string
	for _, o := range end.held {
		held = append(held, o.String())
	}
	status := syncing(fleet.ReasonPruneHeld, fmt.Sprintf("the deployment is deleted, except for %d objects that are held until their deletion is confirmed: %s", len(held), listed(held)))
	status.Observed.Sync = fleet.SyncOutOfSync
	status.Objects = append(end.held, t.awaited(app)...)
	return outcome{status: status}, true
}
