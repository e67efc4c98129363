package argocd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// gives returns the names of the objects that the Application has and does not need any more. After a failed comparison,
// Argo CD lists every object as one that requires pruning.
func (a *application) gives() (out []string) {
	ends := a.annotation(annotationEnd) != ""
	failure, _ := conditions(a)
	for _, r := range a.objects() {
		if ends || r.RequiresPruning && r.Status == argoOutOfSync && failure.IsZero() {
			out = append(out, r.ref().String())
		}
	}
	return out
}

// tenant returns the tenant of the Application. Its deployment is TENANT/NAME.
func (a *application) tenant() string {
	tenant, _, _ := strings.Cut(a.annotation(annotationDeployment), "/")
	return tenant
}

// environment returns the push environment of the Application; "" for the cluster of the agent.
func (a *application) environment() fleet.EnvironmentID {
	return fleet.EnvironmentID(a.annotation(annotationEnvironment))
}

// apiServer returns the URL of the API server of the Application. Several push environments may have the same one: an object in
// one of them is the object in the others.
func (a *application) apiServer() string {
	return withoutProject(cmp.Or(a.annotation(annotationServer), a.server()))
}

// appliesTo reports whether a state is for the cluster with an API server. It does not exclude an environment that is not known
// yet: then more is kept than necessary, never less.
func (e *Engine) appliesTo(d *engine.Desired, apiServer string) bool {
	if d.Source.Environment == "" {
		return apiServer == InCluster
	}
	env, known := e.clusters.environment(d.Source.Environment)
	return !known || env.APIURL == apiServer
}

// takeOver requests a sync of the shared objects that nothing else needs. It reports whether it has written the
// Application.
func (t *target) takeOver(ctx context.Context, app *application, last attempt) (requested bool, err error) {
	shared := app.shared()
	if len(shared) == 0 || t.work.State.Policy.DryRun || t.engine.isPending() || app.busy() && !last.failed || last.partial && !last.failed && !last.succeeded {
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
	given := t.engine.cache.given(app)
	adopted := map[string]bool{}
	if t.work.State.Policy.Adopt {
		if adopted, err = t.adoptable(ctx, shared); err != nil {
			return nil, err
		}
	}
	named := map[string]int{} // objects of the source, by what the messages of Argo CD name
	for _, r := range app.objects() {
		named[r.Kind+"/"+r.Name]++
	}
	for _, r := range app.objects() {
		ref := r.ref()
		if r.RequiresPruning || r.Status == argoSynced || len(t.engine.desiring(ref.String(), t.id, app.apiServer())) > 0 {
			continue
		}
		if name := ref.Kind + "/" + ref.Name; given[ref.String()] || adopted[name] && named[name] == 1 {
			out = append(out, ref)
		}
	}
	return out, nil
}

// adoptable returns the objects, as KIND/NAME, whose Application does not exist. Argo CD names the Applications only in a
// message. If that is not as expected, nothing is adopted.
func (t *target) adoptable(ctx context.Context, shared []string) (map[string]bool, error) {
	out, exists := map[string]bool{}, map[string]bool{}
	for _, message := range shared {
		object, other, ok := parseShared(message)
		if !ok {
			continue
		}
		_, err := t.engine.applications.Get(ctx, other, metav1.GetOptions{}) // an Application of another namespace is NAMESPACE/NAME, which is no valid name
		switch {
		case apierrors.IsNotFound(err) && !strings.ContainsAny(other, "/ "):
			out[object] = true
		case err != nil && !strings.ContainsAny(other, "/ "):
			return nil, fmt.Errorf("reading Application %q, which has %s: %w", other, object, err)
		default:
			exists[object] = true
		}
	}
	maps.DeleteFunc(out, func(object string, _ bool) bool { return exists[object] })
	return out, nil
}

// given returns the objects that other Applications of the tenant, in the same cluster, do not need any more. An Application
// with an operation may be about to delete them.
func (c *cache) given(to *application) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for _, a := range c.applications {
		if a.raw.GetName() == to.raw.GetName() || a.busy() || a.tenant() != to.tenant() || a.apiServer() != to.apiServer() {
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
		if why := t.handOver(app, ref.String()); why.Reason == fleet.ReasonHandOverPending && !t.taken(app, ref.String()) {
			out = append(out, fleet.ObjectStatus{ObjectRef: ref, Sync: t.handOverState(app, ref.String()), Health: fleet.HealthUnknown, Reason: why.Reason, Message: why.Message})
		}
	}
	return out
}

// handOver returns why an object stays for another deployment in the same cluster; zero when there is none. Objects are not
// handed over to other tenants, whose names are not told.
func (t *target) handOver(app *application, object string) fleet.Cause {
	if why := t.namedHandOver(app, object); !why.IsZero() {
		return why
	}
	others := t.engine.desiring(object, t.id, app.apiServer())
	for _, d := range others {
		if d.Tenant == t.work.Tenant {
			return fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: fmt.Sprintf("deployment %q (target %s) is about to take it over", d.Deployment, d.Target)}
		}
	}
	if len(others) > 0 {
		return fleet.Cause{Reason: fleet.ReasonPruneBlocked, Message: "a deployment of another tenant desires it"}
	}
	return fleet.Cause{}
}

// namedHandOver returns why an object stays for another deployment that the server names; zero when it does not, or when a
// user has confirmed the deletion of the object.
func (t *target) namedHandOver(app *application, object string) fleet.Cause {
	if slices.Contains(t.work.State.Confirmed, object) {
		return fleet.Cause{}
	}
	for _, h := range t.work.State.HandOvers {
		if h.Names(object) && !t.engine.elsewhere(t.work.Tenant, h.Deployment, app.apiServer()) {
			return fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: h.String()}
		}
	}
	return fleet.Cause{}
}

// handOverState returns the state of an object that waits for another deployment. If the server names that deployment, it may
// be that it never takes the object, and a user may confirm the deletion instead.
func (t *target) handOverState(app *application, object string) fleet.SyncState {
	if !t.work.State.Detached && !t.namedHandOver(app, object).IsZero() {
		return fleet.SyncHeld
	}
	return fleet.SyncSyncing
}

// handOverEvents reports the objects that have waited for another deployment and do not wait any more, because it has them.
func (t *target) handOverEvents(apiServer string, waiting []fleet.ObjectStatus) {
	still := map[string]bool{}
	for _, o := range waiting {
		if o.Reason == fleet.ReasonHandOverPending {
			still[o.String()] = true
		}
	}
	for name := range t.handing {
		if still[name] {
			continue
		}
		for _, d := range t.engine.desiring(name, t.id, apiServer) {
			t.objectEvent(fleet.EventNormal, fleet.ReasonHandedOver, name, fmt.Sprintf("was taken over by target %s", d.Target))
		}
	}
	t.handing = still
}

// elsewhere reports whether a deployment applies to another cluster than that with an API server.
func (e *Engine) elsewhere(tenant, deployment, apiServer string) bool {
	all := e.newest(func(t *target, d *engine.Desired) bool {
		return d.Source != nil && d.Tenant == tenant && d.Deployment == deployment && t.supersededBy() == ""
	})
	return len(all) > 0 && !slices.ContainsFunc(all, func(d *engine.Desired) bool { return e.appliesTo(d, apiServer) })
}

// newest returns the newest states that a condition is true for.
func (e *Engine) newest(condition func(*target, *engine.Desired) bool) (out []*engine.Desired) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if d := t.newest(); d != nil && condition(t, d) {
			out = append(out, d)
		}
	}
	return out
}

// taken reports whether the Application of another target that desires an object has it.
func (t *target) taken(app *application, object string) bool {
	for _, d := range t.engine.desiring(object, t.id, app.apiServer()) {
		other, ready, _ := t.engine.cache.ofTarget(d.Target)
		if ready && other != nil && compares(other, d) && slices.ContainsFunc(other.objects(), func(r resourceStatus) bool {
			return r.ref().String() == object && r.Status == argoSynced && !r.RequiresPruning
		}) {
			return true
		}
	}
	return false
}

// desiring returns the states, other than that of a target, whose source has an object in the cluster with an API server.
func (e *Engine) desiring(object string, except fleet.TargetID, apiServer string) []*engine.Desired {
	all := e.newest(func(t *target, d *engine.Desired) bool {
		if t.id == except || t.refused.Load() || t.supersededBy() != "" || d.Source == nil {
			return false
		}
		_, found := slices.BinarySearch(d.Source.Objects, object)
		// A dry run, and a deployment that is refused or may not have the kind, never get the object.
		return found && !d.State.Policy.DryRun && unsupported(*d).IsZero() && allowsKind(d, object)
	})
	return slices.DeleteFunc(all, func(d *engine.Desired) bool { return !e.appliesTo(d, apiServer) })
}

// allowsKind reports whether the limits of a deployment allow the kind of an object. Its namespaces are checked as a whole.
func allowsKind(d *engine.Desired, object string) bool {
	return fleet.Limits{Kinds: d.State.Limits.Kinds}.Allows(fleet.ParseObjectKind(object), true)
}
