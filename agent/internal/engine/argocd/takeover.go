package argocd

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// unclaimed looks once for the Application of the target that an earlier agent had, and takes it over: when an agent is
// enrolled again, the server gives it the targets of the earlier one. IDs of targets are unique everywhere, so that only the
// label of the agent differs. It returns true if the pass ends with the outcome.
func (t *target) unclaimed(ctx context.Context, out *outcome) bool {
	if t.looked {
		return false
	}
	name := applicationName(t.id)
	found, err := t.engine.applications.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return t.takeLost(ctx, out)
	}
	if err != nil {
		*out = t.writeFailed(fmt.Errorf("reading the Application: %w", err))
		return true
	}
	labels := found.GetLabels()
	if labels[labelTarget] != string(t.id) || labels[labelManagedBy] != managedBy || labels[labelAgent] == "" {
		t.looked = true
		return false
	}
	if labels[labelAgent] != string(t.engine.config().agent) {
		setLabel(found, labelAgent, string(t.engine.config().agent))
		if found, err = t.engine.applications.Update(ctx, found, metav1.UpdateOptions{FieldManager: managedBy}); err != nil {
			*out = t.writeFailed(fmt.Errorf("taking the Application over from an earlier agent: %w", err))
			return true
		}
	}
	t.looked = true
	t.engine.cache.stored(0, found)
	t.wake.Set()
	out.created = true
	out.status = syncing(fleet.ReasonArgoCDNotReconciled, "the Application of an earlier agent was taken over")
	return true
}

// takeLost takes over the Application that an earlier target of the deployment left: a server whose database was restored
// creates another target for a deployment that it has lost. Objects that the new state does not have are held. A tombstone takes
// the Application over only if a user has deleted the deployment.
func (t *target) takeLost(ctx context.Context, out *outcome) bool {
	found := t.engine.cache.lost(t.work.Tenant+"/"+t.work.Deployment, t.engine.knows)
	switch {
	case found == nil, t.work.State.Tombstone && (t.work.State.HoldPrune || !t.work.State.Consent):
		t.looked = true
		return false
	case t.engine.isPending():
		why := inventory.WaitingForDeployments()
		out.status = syncing(why.Reason, why.Message)
		return true
	}
	next := found.raw.DeepCopy()
	setLabel(next, labelTarget, string(t.id))
	holds, unreadable := found.held()
	if !unreadable && !t.work.State.Tombstone {
		setAnnotations(next, map[string]string{annotationHeld: t.holdMissed(found, holds)})
	}
	setAnnotations(next, map[string]string{annotationTakenBy: string(t.id), annotationVersion: ""})
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		*out = t.writeFailed(fmt.Errorf("taking the Application over from an earlier target of the deployment: %w", err))
		return true
	}
	t.looked = true
	t.engine.cache.stored(0, written)
	t.event(fleet.EventNormal, fleet.ReasonTakenOver, "the Application of an earlier target of the deployment was taken over")
	t.wake.Set()
	out.created = true
	out.status = syncing(fleet.ReasonArgoCDNotReconciled, "the Application of an earlier target was taken over")
	return true
}

// lost returns the Application of a deployment whose target the server does not know; nil if there is none, or several.
func (c *cache) lost(deployment string, known func(fleet.TargetID) bool) (out *application) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.applications {
		labels := a.raw.GetLabels()
		if a.annotation(annotationDeployment) != deployment || a.annotation(annotationEnd) != "" || labels[labelManagedBy] != managedBy ||
			a.raw.GetDeletionTimestamp() != nil || known(fleet.TargetID(labels[labelTarget])) {
			continue
		}
		if out != nil {
			return nil
		}
		out = a
	}
	return out
}

// knows reports whether the server has sent a target.
func (e *Engine) knows(id fleet.TargetID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.targets[id] != nil
}
