package argocd

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// A new version with the same spec must not be reported as Synced because of an earlier comparison: a sync run, and the
// check after an upgrade of Argo CD, wait for what the running Argo CD does. Argo CD therefore compares again, without its
// cache. If nothing but the version is new, somebody has requested a sync, and one sync operation is carried out for the
// version. Other versions, such as a confirmed deletion, need no sync, which would run hooks again.

// onlyNewer reports whether two desired states differ in their version only.
func onlyNewer(before, after engine.Desired) bool {
	after.State.Version = before.State.Version
	return reflect.DeepEqual(before.State, after.State) && reflect.DeepEqual(before.Source, after.Source)
}

// askAgain writes into an Application that Argo CD has to compare, and to sync, again.
func (t *target) askAgain(next *unstructured.Unstructured) {
	values := map[string]string{annotationRefresh: "hard"}
	if next.GetAnnotations()[annotationSync] != "" || t.resyncs() { // a request that is not done stays one
		values[annotationSync] = versionText(t.work.State.Version)
	}
	setAnnotations(next, values)
}

// resyncs reports whether a sync was requested with the version of this pass. After a restart of the agent, the states
// before are not known; then it counts as requested.
func (t *target) resyncs() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.resync == t.work.State.Version
}

// resyncWritten records that the Application has the version of this pass, and with it the request.
func (t *target) resyncWritten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resync == t.work.State.Version {
		t.resync = fleet.Version{}
	}
}

// asked reports whether a sync was requested for the version of this pass and is not done.
func (t *target) asked(app *application) bool {
	return app.annotation(annotationSync) == versionText(t.work.State.Version)
}

// syncOnce requests the sync operation of the version, and removes the request when Argo CD has carried it out.
func (t *target) syncOnce(ctx context.Context, app *application) error {
	if app.busy() {
		if app.retries() {
			return t.endRetries(ctx, app) // for minutes, and the requested sync would wait for it
		}
		return nil
	}
	if !app.performed("sync " + versionText(t.work.State.Version)) {
		return t.request(ctx, app, &syncOperation{
			Revision: t.work.State.Commit, Source: sourceOf(*t.work), SyncOptions: syncOptions(t.work.State.Policy),
		}, "sync")
	}
	if err := t.annotate(ctx, app, map[string]string{annotationSync: ""}); err != nil {
		return fmt.Errorf("completing the requested sync of the Application: %w", err)
	}
	t.wake.Set()
	return nil
}

// retries reports whether Argo CD waits to repeat a sync that has failed.
func (a *application) retries() bool {
	state := a.status.OperationState
	return state != nil && state.Phase == phaseRunning && state.FinishedAt != nil && state.RetryCount > 0
}

// performed reports whether the last operation is a certain one of this engine.
func (a *application) performed(what string) bool {
	state := a.status.OperationState
	return state != nil && slices.Contains(state.Operation.Info, info{infoOperation, what})
}
