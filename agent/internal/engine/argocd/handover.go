package argocd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Argo CD tracks an object for one Application, and the sync of another one that contains it fails. An object changes its
// Application in a sync of exactly this object that may take shared objects over. The target that desires the object
// requests it, when the Application that has the object does not need it any more. That Application stays until then.

// conditionShared says that an Application contains an object that Argo CD tracks for another one.
const conditionShared = "SharedResourceWarning"

// shared returns the messages of the conditions about shared objects.
func (a *application) shared() (out []string) {
	for _, c := range a.status.Conditions {
		if c.Type == conditionShared {
			out = append(out, c.Message)
		}
	}
	return out
}

// gives returns the names of the objects that the Application has and does not need any more.
func (a *application) gives() (out []string) {
	ends := a.annotation(annotationEnd) != ""
	for _, r := range a.objects() {
		if ends || r.RequiresPruning {
			out = append(out, r.ref().String())
		}
	}
	return out
}

// takeOver requests a sync of the shared objects that nothing else needs. It reports whether it has written the
// Application.
func (t *target) takeOver(ctx context.Context, app *application, last attempt) (requested bool, err error) {
	shared := app.shared()
	if len(shared) == 0 || t.work.State.Policy.DryRun || app.busy() && !last.failed || last.partial && !last.failed && !last.succeeded {
		return false, nil
	}
	take, err := t.takeable(ctx, app, shared)
	if err != nil || len(take) == 0 || last.partial && last.failed && !t.retryDue() {
		return false, err
	}
	if app.busy() {
		return true, t.endRetries(ctx, app)
	}
	options := slices.DeleteFunc(syncOptions(t.work.State.Policy), func(option string) bool { return option == failOnShared })
	err = t.request(ctx, app, &syncOperation{
		Revision: t.work.State.Commit, Source: sourceOf(*t.work), Resources: resourcesOf(take), SyncOptions: options,
	}, "take over")
	if err != nil {
		return false, err
	}
	for _, ref := range take {
		t.objectEvent(fleet.EventNormal, fleet.ReasonTakenOver, ref.String(), "another Application has the object and does not need it any more")
	}
	return true, nil
}

// endRetries terminates a sync that has failed and that Argo CD repeats for minutes.
func (t *target) endRetries(ctx context.Context, app *application) error {
	next := app.raw.DeepCopy()
	abandon(next, app)
	written, err := t.engine.applications.Update(ctx, next, metav1.UpdateOptions{FieldManager: managedBy})
	if err != nil {
		return fmt.Errorf("terminating a sync that has failed: %w", err)
	}
	t.engine.cache.stored(0, written)
	return nil
}

// takeable returns the objects of the source that another Application of the agent gives, or that are tracked for an
// Application that does not exist, if the policy adopts them.
func (t *target) takeable(ctx context.Context, app *application, shared []string) (out []fleet.ObjectRef, err error) {
	given := t.engine.cache.given(app.raw.GetName())
	adopted := map[string]bool{}
	if t.work.State.Policy.Adopt {
		if adopted, err = t.adoptable(ctx, shared); err != nil {
			return nil, err
		}
	}
	for _, r := range app.objects() {
		ref := r.ref()
		if r.RequiresPruning || r.Status == argoSynced || t.engine.desiredBy(ref.String(), t.id) != "" {
			continue
		}
		if given[ref.String()] || adopted[ref.Kind+"/"+ref.Name] {
			out = append(out, ref)
		}
	}
	return out, nil
}

// adoptable returns the objects, as KIND/NAME, whose Application does not exist. Argo CD names the Applications only in a
// message. If that is not as expected, nothing is adopted.
func (t *target) adoptable(ctx context.Context, shared []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, message := range shared {
		object, applications, ok := strings.Cut(message, " is part of applications ")
		_, other, two := strings.Cut(applications, " and ")
		if !ok || !two {
			continue
		}
		_, err := t.engine.applications.Get(ctx, other, metav1.GetOptions{}) // an Application of another namespace is NAMESPACE/NAME, which is no valid name
		switch {
		case apierrors.IsNotFound(err) && !strings.ContainsAny(other, "/ "):
			out[object] = true
		case err != nil && !strings.ContainsAny(other, "/ "):
			return nil, fmt.Errorf("reading Application %q, which has %s: %w", other, object, err)
		}
	}
	return out, nil
}

// given returns the objects that the Applications of the agent, other than one, do not need any more. An Application with an
// operation may be about to delete them.
func (c *cache) given(except string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for name, a := range c.applications {
		if name == except || a.busy() {
			continue
		}
		for _, object := range a.gives() {
			out[object] = true
		}
	}
	return out
}

// awaited describes the objects of an Application that ends which another deployment desires and has not taken over yet.
func (t *target) awaited(app *application) (out []fleet.ObjectStatus) {
	t.waitsForOthers.Store(true) // before the Applications of the others are read
	for _, r := range app.objects() {
		ref := r.ref()
		if why := t.handOver(ref.String()); !why.IsZero() && !t.engine.taken(ref.String(), t.id) {
			out = append(out, fleet.ObjectStatus{ObjectRef: ref, Sync: fleet.SyncSyncing, Health: fleet.HealthUnknown, Reason: why.Reason, Message: why.Message})
		}
	}
	return out
}

// handOver returns why an object stays for another deployment; zero when there is none.
func (t *target) handOver(object string) fleet.Cause {
	if slices.Contains(t.work.State.Confirmed, object) {
		return fleet.Cause{}
	}
	for _, h := range t.work.State.HandOvers {
		if h.Names(object) {
			return fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: h.String()}
		}
	}
	if other := t.engine.desiredBy(object, t.id); other != "" {
		return fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: fmt.Sprintf("deployment %s is about to take it over", other)}
	}
	return fleet.Cause{}
}

// taken reports whether the Application of another target that desires an object has it.
func (e *Engine) taken(object string, except fleet.TargetID) bool {
	for _, d := range e.desiring(object, except) {
		app, ready, _ := e.cache.ofTarget(d.Target)
		if ready && app != nil && compares(app, d) && slices.ContainsFunc(app.objects(), func(r resourceStatus) bool {
			return r.ref().String() == object && r.Status == argoSynced && !r.RequiresPruning
		}) {
			return true
		}
	}
	return false
}

// desiring returns the states, other than that of a target, whose source has an object.
func (e *Engine) desiring(object string, except fleet.TargetID) (out []*engine.Desired) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if t.id == except {
			continue
		}
		// A dry run, and a deployment that is refused, never get the object.
		if d := t.newest(); d != nil && d.Source != nil && !d.State.Policy.DryRun && unsupported(*d).IsZero() {
			if _, found := slices.BinarySearch(d.Source.Objects, object); found {
				out = append(out, d)
			}
		}
	}
	return out
}

// desiredBy returns a deployment, other than that of a target, whose source has an object; "" if there is none.
func (e *Engine) desiredBy(object string, except fleet.TargetID) string {
	for _, d := range e.desiring(object, except) {
		return d.Tenant + "/" + d.Deployment
	}
	return ""
}
