package argocd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// detach deletes the Application and nothing else: it has no finalizer, so that Argo CD leaves the objects.
func (t *target) detach(ctx context.Context, app *application) outcome {
	if app == nil {
		message := "no Application was found here: no object was detached"
		if t.reported && slices.Contains([]fleet.Reason{fleet.ReasonDetaching, fleet.ReasonHandOverPending}, t.last.Observed.Reason) {
			message = ""
		}
		return t.finish(fleet.SyncDetached, fleet.Cause{Reason: fleet.ReasonDetached, Message: message}, t.last.Objects)
	}
	if t.engine.isPending() { // a deployment that has not arrived yet may take objects over
		return t.waitForDeployments(app)
	}
	objects := t.released(app, fleet.ReasonDetached)
	if done, err := t.beginEnd(ctx, app, endDetached); err != nil || !done {
		return t.ending(err, fleet.ReasonDetaching, objects)
	}
	if out, wait := t.awaitHandOvers(app); wait {
		return out
	}
	if err := t.remove(ctx, app); err != nil {
		return t.ending(err, fleet.ReasonDetaching, objects)
	}
	t.event(fleet.EventNormal, fleet.ReasonDetached, fmt.Sprintf("%d objects stay as they are and are not managed any more", len(objects)))
	return t.finish(fleet.SyncDetached, fleet.Cause{Reason: fleet.ReasonDetached}, objects)
}

// released describes the objects that stay when the target ends, and that no other deployment takes over.
func (t *target) released(app *application, reason fleet.Reason) (out []fleet.ObjectStatus) {
	for _, r := range app.objects() {
		if t.handOver(app, r.ref().String()).Reason == fleet.ReasonHandOverPending {
			continue
		}
		health, message := objectHealth(app, r)
		out = append(out, fleet.ObjectStatus{ObjectRef: r.ref(), Sync: fleet.SyncDetached, Health: health, Reason: reason, Message: message})
	}
	return out
}

// ending describes a target that is about to end. After a crash, a pass without the Application ends it.
func (t *target) ending(err error, reason fleet.Reason, objects []fleet.ObjectStatus) outcome {
	if err != nil && !apierrors.IsConflict(err) {
		out := t.writeFailed(err)
		out.status.Objects = objects
		return out
	}
	status := syncing(reason, "")
	status.Objects = objects
	return outcome{err: err, status: status}
}

// beginEnd stops Argo CD from applying, so that it restores nothing that is deleted, and removes finalizers, which would
// delete objects. It reports whether that is done and no operation runs.
func (t *target) beginEnd(ctx context.Context, app *application, end string) (done bool, err error) {
	own, _, _ := unstructured.NestedBool(app.raw.Object, "operation", "initiatedBy", "automated")
	late := own && app.requested() // Argo CD had decided on it before it saw that it must not apply any more
	if app.annotation(annotationEnd) == end && app.version() == t.work.State.Version && !automated(app.spec) && len(app.raw.GetFinalizers()) == 0 && !late {
		if end == endDetached {
			// A push environment may move to another Argo CD, which must not apply before this one has stopped.
			return app.server() == InCluster || !app.busy(), nil
		}
		return !app.busy() && app.annotation(annotationRefresh) == "", nil
	}
	next := app.raw.DeepCopy()
	next.SetFinalizers(nil)
	unstructured.RemoveNestedField(next.Object, "spec", "syncPolicy", "automated")
	abandon(next, app)
	// The refresh makes Argo CD list the objects once more, after the last operation.
	setAnnotations(next, map[string]string{annotationEnd: end, annotationVersion: versionText(t.work.State.Version), annotationRefresh: "normal"})
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return false, fmt.Errorf("preparing the end of the Application: %w", err)
	}
	t.engine.cache.stored(0, written)
	return false, nil
}

// remove deletes the Application, if it is still the one that was read and has no finalizer, and its project if nothing
// else uses it.
func (t *target) remove(ctx context.Context, app *application) error {
	if app.raw.GetLabels()[labelTarget] != string(t.id) || len(app.raw.GetFinalizers()) > 0 {
		return &nameInUseError{"Application", app.raw.GetName()}
	}
	project, _, _ := unstructured.NestedString(app.spec, "project")
	err := t.engine.applications.Delete(ctx, app.raw.GetName(), onlyThis(app.raw))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Application: %w", err)
	}
	t.engine.cache.removed(app.raw.GetName())
	if err := t.engine.releaseProject(ctx, project); err != nil {
		t.engine.log.Warn("a project that nothing uses stays for now", "project", project, "error", err.Error())
		t.engine.unused.Set()
	}
	t.engine.releaseSecrets(ctx)
	return nil
}

// delete carries out a tombstone: it deletes the objects that may be deleted, and then the Application.
func (t *target) delete(ctx context.Context, app *application) outcome {
	if app == nil {
		if t.reported && slices.Contains([]fleet.Reason{fleet.ReasonPruning, fleet.ReasonHandOverPending, fleet.ReasonPruneHeld}, t.last.Observed.Reason) {
			return t.finish(fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonDeleted}, nil)
		}
		const message = "no Application was found here: nothing was deleted"
		t.event(fleet.EventWarning, fleet.ReasonNoInventory, message)
		return t.finish(fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonNoInventory, Message: message}, nil)
	}
	if t.engine.isPending() {
		return t.waitForDeployments(app)
	}
	done, err := t.beginEnd(ctx, app, endDeleted)
	if err != nil || !done {
		return t.ending(err, fleet.ReasonPruning, nil)
	}
	end := t.decideEnd(app)
	state := app.status.OperationState
	deleting := state != nil && state.Operation.Sync != nil && slices.ContainsFunc(state.Operation.Info, func(i info) bool {
		return i == info{infoOperation, "delete " + versionText(t.work.State.Version)}
	})
	switch {
	case len(end.remove) == 0, deleting && state.Phase == phaseSucceeded && covers(state.Operation.Sync.Resources, end.remove):
		if out, wait := t.awaitConfirmation(app, end); wait {
			return out
		}
		if out, wait := t.awaitHandOvers(app); wait {
			return out
		}
		return t.finishDelete(ctx, app, end.keep)
	case deleting && state.Phase != phaseSucceeded && !t.retryDue():
		status := failed(fleet.Cause{Reason: fleet.ReasonPruneFailed, Message: state.Message})
		return outcome{status: status}
	}
	t.keepsAtEnd = end.keep // after the operation, Argo CD does not list objects any more that it does not track
	return t.ending(t.startDelete(ctx, app, end.remove), fleet.ReasonPruning, nil)
}

// waitForDeployments describes a target that ends when the states of other deployments have arrived.
func (t *target) waitForDeployments(app *application) outcome {
	why := inventory.WaitingForDeployments()
	status := syncing(why.Reason, why.Message)
	for _, r := range app.objects() {
		status.Objects = append(status.Objects, fleet.ObjectStatus{ObjectRef: r.ref(), Sync: fleet.SyncSyncing, Health: fleet.HealthUnknown, Reason: why.Reason, Message: why.Message})
	}
	return outcome{status: status}
}

// awaitHandOvers describes a target that ends after others have taken over objects.
func (t *target) awaitHandOvers(app *application) (out outcome, wait bool) {
	waiting := t.awaited(app)
	t.handOverEvents(app.apiServer(), waiting)
	if len(waiting) == 0 {
		return outcome{}, false
	}
	status := syncing(fleet.ReasonHandOverPending, "other deployments take over "+listed(names(waiting))+": "+waiting[0].Message)
	status.Objects = waiting
	return outcome{status: status}, true
}

// covers reports whether an operation had every one of these objects.
func covers(had []syncResource, refs []fleet.ObjectRef) bool {
	for _, want := range resourcesOf(refs) {
		if !slices.Contains(had, want) {
			return false
		}
	}
	return true
}

// startDelete requests a sync that deletes exactly these objects. The objects are still in the source, so the operation has
// a manifest of its own instead, which needs no Git. Only objects that it lists are touched, and the object of the manifest
// is not among them.
func (t *target) startDelete(ctx context.Context, app *application, remove []fleet.ObjectRef) error {
	need, err := t.needOf(app)
	if err != nil && t.engine.cache.project(need.name) == nil {
		return err
	}
	if err == nil {
		// The project of an earlier agent exists already, and is not changed.
		if _, err := t.engine.ensureProject(ctx, need); err != nil && !errors.As(err, new(*nameInUseError)) {
			return err
		}
	}
	revision, _, _ := unstructured.NestedString(app.spec, "source", "targetRevision")
	return t.request(ctx, app, &syncOperation{
		Revision: revision, Prune: true, Resources: resourcesOf(remove), SyncOptions: []string{propagation(t.work.State.Policy)},
		Manifests: []string{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + neverApplied + `"}}`},
	}, "delete")
}

// needOf returns what an Application has in its project, for a target without a source.
func (t *target) needOf(app *application) (projectNeed, error) {
	project, _, _ := unstructured.NestedString(app.spec, "project")
	url, _, _ := unstructured.NestedString(app.spec, "source", "repoURL")
	need := projectNeed{
		name: project, tenant: t.work.Tenant, limits: t.work.State.Limits, repository: url, namespaces: app.list(annotationNamespaces), server: app.server(),
	}
	if id := fleet.EnvironmentID(app.annotation(annotationEnvironment)); id != "" {
		env, ok := t.engine.clusters.environment(id)
		if !ok {
			return need, fmt.Errorf("the push environment %s of the Application was not delivered to this agent yet", id)
		}
		need.environment = &env
	}
	return need, nil
}

// finishDelete deletes the Application after its objects.
func (t *target) finishDelete(ctx context.Context, app *application, keep []fleet.ObjectStatus) outcome {
	if err := t.remove(ctx, app); err != nil {
		return t.ending(err, fleet.ReasonPruning, nil)
	}
	for _, o := range t.keepsAtEnd {
		if !slices.ContainsFunc(keep, func(k fleet.ObjectStatus) bool { return k.ObjectRef == o.ObjectRef }) {
			keep = append(keep, o)
		}
	}
	if len(keep) == 0 {
		t.event(fleet.EventNormal, fleet.ReasonDeleted, "everything was deleted")
		return t.finish(fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonDeleted}, nil)
	}
	var kept []string
	for _, o := range keep {
		t.objectEvent(fleet.EventNormal, fleet.ReasonReleased, o.String(), "stays when its deployment is deleted: "+o.Message)
		kept = append(kept, o.String()+" ("+o.Message+")")
	}
	return t.finish(fleet.SyncDeleted, fleet.Cause{Reason: fleet.ReasonReleased, Message: "kept, and not managed any more: " + listed(kept)}, nil)
}

// finish describes a target that has ended.
func (t *target) finish(state fleet.SyncState, why fleet.Cause, objects []fleet.ObjectStatus) outcome {
	return outcome{ended: true, status: engine.Status{Objects: objects, Observed: fleet.Observed{
		Sync: state, Health: fleet.HealthCurrent, Reason: why.Reason, Message: why.Message,
	}}}
}
