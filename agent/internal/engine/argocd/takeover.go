package argocd

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
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
		return t.takeLost(ctx, out) // it may be with a later target of the deployment, which a restored database does not have
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
// nothing over: it may be older than the target whose Application it would delete.
func (t *target) takeLost(ctx context.Context, out *outcome) bool {
	found, err := t.lost(ctx)
	if err != nil {
		*out = t.writeFailed(err)
		return true
	}
	switch {
	case found == nil, t.work.State.Detached, t.work.State.Tombstone, t.work.Source == nil, t.work.Source.Environment != found.environment():
		t.looked = true
		return false
	case t.engine.isPending():
		why := inventory.WaitingForDeployments()
		out.status = syncing(why.Reason, why.Message)
		return true
	}
	next := found.raw.DeepCopy()
	earlier := found.raw.GetLabels()[labelTarget]
	setLabel(next, labelTarget, string(t.id))
	setLabel(next, labelAgent, string(t.engine.config().agent))
	abandon(next, found) // the new state may have what an operation of the earlier target deletes
	holds, unreadable := found.held()
	if !unreadable {
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
	t.event(fleet.EventNormal, fleet.ReasonTakenOver, fmt.Sprintf("the Application of target %s, which this deployment was here before, was taken over", earlier))
	t.wake.Set()
	out.created = true
	out.status = syncing(fleet.ReasonArgoCDNotReconciled, "the Application of an earlier target was taken over")
	return true
}

// lost returns the Application that an earlier target of the deployment left; nil if there is none, or several.
func (t *target) lost(ctx context.Context) (*application, error) {
	deployment := t.work.Tenant + "/" + t.work.Deployment
	if found := t.engine.cache.lost(deployment, t.engine.knows); found != nil || t.work.Source == nil {
		return found, nil
	}
	return t.engine.ofEarlierAgent(ctx, deployment)
}

// ofEarlierAgent returns the Application of a deployment that this installation had before the agent was enrolled again; nil
// if there is none, or several.
func (e *Engine) ofEarlierAgent(ctx context.Context, deployment string) (out *application, err error) {
	list, err := e.applications.List(ctx, metav1.ListOptions{
		LabelSelector: labelManagedBy + "=" + managedBy + "," + labelAgent + "," + labelAgent + "!=" + string(e.config().agent), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the Application of an earlier agent: %w", err)
	}
	for i := range list.Items {
		a := parse(&list.Items[i])
		if a.annotation(annotationDeployment) != deployment || a.annotation(annotationAgentNamespace) != e.namespace || a.annotation(annotationEnd) != "" ||
			a.raw.GetDeletionTimestamp() != nil || e.knows(fleet.TargetID(a.raw.GetLabels()[labelTarget])) {
			continue
		}
		if out != nil {
			return nil, nil
		}
		out = a
	}
	return out, nil
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

// knows reports whether the server has sent a target, and no other target of the same deployment after it.
func (e *Engine) knows(id fleet.TargetID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[id]
	return t != nil && t.supersededBy() == ""
}

// succeedLocked records the target that came last of a deployment. A server has one target of a deployment on an agent. So when
// another one with a source is set, it supersedes the one before, even if the tombstone of that one has not arrived or never
// will: a server whose database was restored may not know it. A superseded target does nothing until a newer state of it is set.
func (e *Engine) succeedLocked(d engine.Desired) {
	maps.DeleteFunc(e.current, func(_ string, id fleet.TargetID) bool { return id == d.Target })
	if d.Source == nil || d.Deployment == "" {
		return
	}
	name := d.Tenant + "/" + d.Deployment
	if earlier := e.targets[e.current[name]]; earlier != nil {
		earlier.supersede(d.Target)
	}
	e.current[name] = d.Target
}

// supersede ends the work on a target until a newer state of it is set.
func (t *target) supersede(by fleet.TargetID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.successor, t.lookAgain = by, true
	t.wake.Set()
}

// supersededBy returns the target of the same deployment that came after this one; "" when there is none.
func (t *target) supersededBy() fleet.TargetID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.successor
}

// rewound describes a target that was superseded. A server that sends it was restored from a backup.
func rewound(by fleet.TargetID) engine.Status {
	return engine.Status{Observed: fleet.Observed{Sync: fleet.SyncRewound, Health: fleet.HealthUnknown, Reason: fleet.ReasonRewound,
		Message: fmt.Sprintf("target %s of the same deployment came after this one and has taken over here", by)}}
}
