package argocd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// apply makes the next step of a target with a source.
func (t *target) apply(ctx context.Context, app *application) outcome {
	why := t.refuse()
	if now := !why.IsZero(); t.refused.Swap(now) != now {
		t.engine.wakeWaiting() // others may wait for objects that this target never gets, or gets now
	}
	if !why.IsZero() && (app == nil || why.Reason != fleet.ReasonKindNotAllowed) {
		return outcome{status: failed(why)}
	}
	need := t.need(app)
	if app != nil && app.server() != need.server && !t.mayRedirect(app, need) {
		return outcome{status: failed(fleet.Cause{Reason: fleet.ReasonDestinationChanged, Message: fmt.Sprintf(
			"the Application applies to %s, and the environment of the deployment is %s: its objects would stay there unmanaged", app.server(), need.server)})}
	}
	restored, err := t.engine.ensureProject(ctx, need)
	if err != nil {
		return t.writeFailed(err)
	}
	if restored && app != nil && app.version() == t.work.State.Version {
		t.event(fleet.EventNormal, fleet.ReasonArgoCDRestored, "AppProject "+need.name+" was brought back to what its deployments need")
	}
	if !why.IsZero() { // Argo CD refuses the kind from now on too, and deletes nothing
		return outcome{status: failed(why)}
	}
	if err := t.ensureRepository(ctx, secretKey{need.name, need.tenant, need.repository}); err != nil {
		return t.writeFailed(err)
	}
	if err := t.ensureCluster(ctx, need); err != nil {
		return t.writeFailed(err)
	}
	if app == nil {
		return t.create(ctx, need)
	}
	if app.raw.GetDeletionTimestamp() != nil {
		return outcome{status: syncing(fleet.ReasonArgoCDNotReconciled, "the Application is being deleted by somebody else; it is created again after that")}
	}
	if changed, err := t.update(ctx, app, need); changed || err != nil {
		if err != nil {
			return t.writeFailed(err)
		}
		if app.repository() != (secretKey{need.name, need.tenant, need.repository}) || app.server() != need.server {
			t.engine.releaseSecrets(ctx)
		}
		return outcome{status: syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD has not compared the new revision yet")}
	}
	if requested, err := t.compareKinds(ctx, app); err != nil {
		return t.writeFailed(err)
	} else if requested {
		return outcome{status: syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD has not compared with the new kind filter yet")}
	}
	return t.observe(ctx, app)
}

// mayRedirect reports whether the destination of an Application may be written although it differs. A change by hand is
// reverted: the annotation then still names the environment.
func (t *target) mayRedirect(app *application, need projectNeed) bool {
	return app.environment() == t.work.Source.Environment && withoutProject(app.annotation(annotationServer)) == withoutProject(need.server)
}

// ensureRepository writes the Secret of the repository. After a change, Argo CD reads the repository again.
func (t *target) ensureRepository(ctx context.Context, repo secretKey) error {
	writes, restored, err := t.engine.repositories.ensure(ctx, repo)
	if restored {
		t.event(fleet.EventNormal, fleet.ReasonArgoCDRestored, "the Secret of repository "+repo.url+" was changed by hand and is restored")
	}
	if writes != t.repositoryWrites {
		t.repositoryWrites = writes
		t.syncs.Reset()
		t.syncDue = time.Now().Add(t.engine.timing.retryFirst) // Argo CD needs a moment to see the Secret
		t.engine.wakeAll()                                     // the other targets with the repository
	}
	return err
}

// refuse returns why nothing of the desired state may be written; zero when it may.
func (t *target) refuse() fleet.Cause {
	if why := unsupported(*t.work); !why.IsZero() {
		return why
	}
	s := t.engine.config()
	if t.work.Source.Environment != "" {
		if why := t.refusePush(); !why.IsZero() {
			return why
		}
		return t.refuseKinds(s.kinds)
	}
	if why := s.policy.RefuseAs(""); !why.IsZero() {
		return why
	}
	for _, ns := range t.namespaces() {
		switch limits := t.work.State.Limits; {
		case ns == t.engine.namespace || ns == t.engine.engineNamespace:
			return fleet.Cause{Reason: fleet.ReasonOwnInstallation, Message: fmt.Sprintf("namespace %q belongs to the agent or to Argo CD, which no deployment may change", ns)}
		case s.scope == fleet.ScopeNamespaced && !slices.Contains(s.namespaces, ns):
			return fleet.Cause{Reason: fleet.ReasonOutsideScope, Message: fmt.Sprintf("objects are in namespace %q, and this agent is limited to other namespaces", ns)}
		case len(limits.Namespaces) > 0 && !slices.Contains(limits.Namespaces, ns):
			return fleet.Cause{Reason: fleet.ReasonGrantViolation, Message: fmt.Sprintf("namespace %q is beyond the limits of the grant", ns)}
		}
		if why := s.policy.RefuseNamespace(ns); !why.IsZero() {
			return why
		}
	}
	return t.refuseKinds(s.kinds)
}

// refuseKinds returns which object the kind filter of the agent refuses; zero when it refuses none. Argo CD applies a source
// whole, so that one refused object refuses the target.
func (t *target) refuseKinds(kinds fleet.KindFilter) fleet.Cause {
	for _, object := range t.work.Source.Objects {
		if why := kinds.Refusal(fleet.ParseObjectKind(object)); why != "" {
			return fleet.Cause{Reason: fleet.ReasonKindNotAllowed, Message: object + ": " + why}
		}
	}
	return fleet.Cause{}
}

// namespaces returns the namespaces of the desired objects.
func (t *target) namespaces() []string {
	if t.work.Source == nil {
		return nil
	}
	return union(t.work.Source.Namespaces, []string{t.work.State.Namespace})
}

// need returns what the target needs in its project. Namespaces that it has left stay until nothing is left in them:
// Argo CD does not see objects outside of the project, and could not prune them.
func (t *target) need(app *application) projectNeed {
	need := projectNeed{tenant: t.work.Tenant, limits: t.work.State.Limits, namespaces: t.namespaces(), server: InCluster}
	var id fleet.EnvironmentID
	if t.work.Source != nil {
		need.repository, id = t.work.Source.RepoURL, t.work.Source.Environment
	}
	need.name = projectName(t.engine.config().agent, t.work.Tenant, t.work.State.Limits, id)
	if env, ok := t.engine.clusters.environment(id); ok {
		need.environment, need.server = &env, serverOf(env, need.name)
	}
	if app != nil {
		need.namespaces = union(need.namespaces, t.occupied(app))
	}
	return need
}

// occupied returns the namespaces that the Application may have objects in. A namespace that the target has left counts
// until a comparison of the desired revision shows no object in it.
func (t *target) occupied(app *application) []string {
	listed := app.list(annotationNamespaces)
	if t.work.Source == nil || !t.current(app) {
		return listed
	}
	var used []string
	for _, r := range app.objects() {
		used = append(used, r.Namespace)
	}
	return slices.DeleteFunc(listed, func(ns string) bool { return !slices.Contains(used, ns) })
}

// create creates the Application.
func (t *target) create(ctx context.Context, need projectNeed) outcome {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": applicationName(t.id), "namespace": t.engine.engineNamespace},
		"spec":     specOf(*t.work, need.name, need.server),
	}}
	t.mark(obj, nil, need)
	written, err := t.engine.applications.Create(ctx, obj, metav1.CreateOptions{FieldManager: managedBy})
	if apierrors.IsAlreadyExists(err) {
		return t.writeFailed(&nameInUseError{"Application", obj.GetName()})
	}
	if err != nil {
		return t.writeFailed(fmt.Errorf("creating the Application: %w", err))
	}
	t.engine.cache.stored(0, written)
	if t.known {
		t.event(fleet.EventWarning, fleet.ReasonArgoCDRestored,
			"the Application was deleted by somebody else and is created again; Argo CD has left or deleted the objects, as the deletion said")
	}
	return outcome{created: true, status: syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD has not seen the Application yet")}
}

// mark sets the labels and annotations of the Application. Together with the spec they are one write.
func (t *target) mark(obj *unstructured.Unstructured, app *application, need projectNeed) {
	setLabel(obj, labelAgent, string(t.engine.config().agent))
	setLabel(obj, labelTarget, string(t.id))
	setLabel(obj, labelManagedBy, managedBy)
	values := map[string]string{
		annotationDeployment: t.work.Tenant + "/" + t.work.Deployment, annotationVersion: versionText(t.work.State.Version),
		annotationDigest: t.work.State.Digest, annotationNamespaces: jsonText(need.namespaces), annotationEnd: "",
		annotationEnvironment: string(t.work.Source.Environment), annotationServer: need.server, annotationAgentNamespace: t.engine.namespace,
		annotationManaged: t.managed(app),
	}
	kept := t.work.Source.Kept
	if app != nil {
		// An object that has left the source is kept by its last manifest.
		kept = union(kept, slices.DeleteFunc(app.list(annotationKept), func(name string) bool { return slices.Contains(t.work.Source.Objects, name) }))
		if app.version() != t.work.State.Version {
			values[annotationObjects] = strconv.Itoa(len(app.objects()))
		}
	}
	if app != nil && app.version() != t.work.State.Version {
		if holds, unreadable := app.held(); !unreadable && t.work.State.HoldPrune {
			values[annotationHeld] = t.holdMissed(app, holds)
		} else if !unreadable {
			values[annotationHeld] = t.holdRefused(app, holds)
		}
	}
	values[annotationKept] = ""
	if len(kept) > 0 {
		values[annotationKept] = jsonText(kept)
	}
	setAnnotations(obj, values)
}

// holdMissed returns the holds with every object that the server has missed in a recovery. They are written together with
// the version: if pruning is off, or the comparison fails, a later version must not delete them.
func (t *target) holdMissed(app *application, holds map[string]inventory.Hold) string {
	for _, r := range app.objects() {
		if name := r.ref().String(); holds[name] == "" && !slices.Contains(t.work.Source.Objects, name) {
			holds[name] = inventory.HeldAfterRecovery
		}
	}
	return holdsText(holds)
}

// update writes the Application if its spec, labels or annotations are not as desired. The write fails if somebody has
// changed the Application since it was read.
func (t *target) update(ctx context.Context, app *application, need projectNeed) (changed bool, err error) {
	next := app.raw.DeepCopy()
	spec := specOf(*t.work, need.name, need.server)
	t.mark(next, app, need)
	newSpec := !sameSpec(app.spec, spec)
	if newSpec {
		next.Object["spec"] = spec
	}
	again := !newSpec && app.version() != t.work.State.Version && !t.work.State.Policy.DryRun
	finalizers := len(next.GetFinalizers()) > 0
	if finalizers {
		next.SetFinalizers(nil) // one of them would delete the objects with the Application
	}
	if !newSpec && !finalizers && sameMeta(app.raw, next) {
		return false, nil
	}
	byHand := app.version() == t.work.State.Version && (newSpec || finalizers || app.raw.GetLabels()[labelTarget] != string(t.id))
	switch {
	case newSpec:
		setAnnotations(next, map[string]string{annotationRefresh: "normal", annotationSync: ""})
		abandon(next, app)
	case again:
		t.askAgain(next)
	}
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return false, fmt.Errorf("writing the Application: %w", err)
	}
	t.engine.cache.stored(0, written)
	if byHand {
		t.event(fleet.EventNormal, fleet.ReasonArgoCDRestored, "the Application was changed by hand and is restored")
	}
	return newSpec || again, nil
}

func sameMeta(a, b *unstructured.Unstructured) bool {
	return mapsEqual(a.GetLabels(), b.GetLabels()) && mapsEqual(a.GetAnnotations(), b.GetAnnotations())
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}

// abandon ends the operation on an earlier spec: one that has not begun is removed, one that runs is terminated. It would
// otherwise continue to apply, or to prune, by the earlier spec.
func abandon(next *unstructured.Unstructured, app *application) {
	state := app.status.OperationState
	switch {
	case state != nil && state.Phase == phaseRunning:
		_ = unstructured.SetNestedField(next.Object, phaseTerminating, "status", "operationState", "phase")
	case app.op != nil && (state == nil || state.Phase != phaseTerminating):
		delete(next.Object, "operation")
	}
}

// writeFailed describes a failed write. A conflict is no failure: the next pass sees the newer object.
func (t *target) writeFailed(err error) outcome {
	var taken *nameInUseError
	switch {
	case apierrors.IsConflict(err):
		return outcome{err: err, status: syncing(fleet.ReasonApplying, "")}
	case errors.As(err, &taken):
		return outcome{err: err, status: failed(fleet.Cause{Reason: fleet.ReasonArgoCDNameInUse, Message: err.Error()})}
	case absent(err):
		out := t.unavailable(err)
		out.err = err
		return out
	}
	return outcome{err: err, status: failed(fleet.Cause{Reason: fleet.ReasonArgoCDWriteFailed, Message: err.Error()})}
}

// unavailable describes that Argo CD cannot be used.
func (t *target) unavailable(err error) outcome {
	if absent(err) {
		return outcome{status: failed(fleet.Cause{Reason: fleet.ReasonArgoCDNotFound, Message: fmt.Sprintf(
			"namespace %q has no Argo CD that this agent may use: %v", t.engine.engineNamespace, err)})}
	}
	return outcome{status: failed(fleet.Cause{Reason: fleet.ReasonClusterUnavailable, Message: err.Error()})}
}

func failed(why fleet.Cause) engine.Status {
	return engine.Status{Observed: fleet.Observed{Sync: fleet.SyncFailed, Health: fleet.HealthUnknown, Reason: why.Reason, Message: why.Message}}
}

func syncing(reason fleet.Reason, message string) engine.Status {
	return engine.Status{Observed: fleet.Observed{Sync: fleet.SyncSyncing, Health: fleet.HealthUnknown, Reason: reason, Message: message}}
}

func (t *target) event(kind fleet.EventType, reason fleet.Reason, message string) {
	t.objectEvent(kind, reason, "", message)
}

func (t *target) objectEvent(kind fleet.EventType, reason fleet.Reason, object, message string) {
	t.engine.reporter.Event(t.id, fleet.Event{
		At: time.Now(), Type: kind, Reason: reason, Deployment: t.work.Deployment, Object: object, Message: message,
	})
}
