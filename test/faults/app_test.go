package faults_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// app is a GitOpsDeployment, as it is declared.
type app struct {
	name   string
	manual bool
	exists bool
	spec   spec
	run    string // commit of the newest sync run; "" for none
}

// spec is what a GitOpsDeployment declares.
type spec struct {
	repo, branch, env string // no env is no destination
	variant, target   int
}

// source is the source of manual apps: only their sync runs change.
var source = spec{repo: openRepo, branch: mainBranch, env: edge}

// objects returns what a content of a spec deploys.
func (t *tenant) objects(app string, s spec, c content) map[object]string {
	out := map[object]string{}
	for _, name := range t.names(app, s.variant, c.branch) {
		out[object{t.targets[s.target], name}] = c.value
	}
	return out
}

// wants returns the objects that an app wants in every state that is possible now.
func (t *tenant) wants(a *app) map[object]string {
	if !a.exists {
		return nil
	}
	return t.objects(a.name, a.spec, t.repos[a.spec.repo].heads[a.spec.branch])
}

// has returns the objects that an app has in the end.
func (t *tenant) has(a *app) map[object]string {
	if a.exists && a.manual {
		return t.objects(a.name, a.spec, t.repos[a.spec.repo].all[a.run])
	}
	return t.wants(a)
}

func (t *tenant) resource(a *app) *v1alpha1.GitOpsDeployment {
	return &v1alpha1.GitOpsDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: a.name}}
}

// fill writes a spec into a resource.
func (t *tenant) fill(cr *v1alpha1.GitOpsDeployment, a *app, s spec) {
	cr.Spec.Source = v1alpha1.Source{RepoURL: t.repos[s.repo].url, Path: fmt.Sprintf("%s-%d", a.name, s.variant), TargetRevision: s.branch}
	cr.Spec.Destination = v1alpha1.Destination{}
	if s.env != "" {
		cr.Spec.Destination = v1alpha1.Destination{Environment: s.env, Namespace: t.targets[s.target]}
	}
	cr.Spec.Type = map[bool]string{true: "manual", false: ""}[a.manual] // automated by default
}

// create creates the resource of an app.
func (t *tenant) create(ctx context.Context, a *app, s spec, finalizer bool) error {
	cr := t.resource(a)
	t.fill(cr, a, s)
	if finalizer {
		cr.Finalizers = []string{v1alpha1.ResourcesFinalizer}
	}
	if err := t.w.Create(ctx, cr); err != nil {
		return err
	}
	t.declare(a, func() { a.exists, a.spec, a.run = true, s, "" }, versionOf(cr.ResourceVersion))
	return nil
}

// edit changes the resource of an app to another spec.
func (t *tenant) edit(ctx context.Context, a *app, s spec) error {
	var version uint64
	err := t.update(ctx, a, func(cr *v1alpha1.GitOpsDeployment) { t.fill(cr, a, s) }, &version)
	if err == nil {
		t.declare(a, func() { a.spec = s }, version)
	}
	return err
}

// change changes the resource of an app, and not what it declares.
func (t *tenant) change(ctx context.Context, a *app, change func(*v1alpha1.GitOpsDeploymentSpec)) error {
	var version uint64
	return t.update(ctx, a, func(cr *v1alpha1.GitOpsDeployment) { change(&cr.Spec) }, &version)
}

func (t *tenant) update(ctx context.Context, a *app, change func(*v1alpha1.GitOpsDeployment), version *uint64) error {
	for {
		cr := t.resource(a)
		if err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr); err != nil {
			return err
		}
		change(cr)
		err := t.w.Update(ctx, cr)
		if apierrors.IsConflict(err) {
			continue
		}
		*version = versionOf(cr.ResourceVersion)
		return err
	}
}

// remove deletes the resource of an app.
func (t *tenant) remove(ctx context.Context, a *app) error {
	cr := t.resource(a)
	if err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr); err != nil {
		return err
	}
	if err := t.w.Delete(ctx, cr); err != nil {
		return err
	}
	t.declare(a, func() { a.exists = false }, versionOf(cr.ResourceVersion))
	return nil
}

// declare changes the declared state of an app, and tells the ledger since when.
func (t *tenant) declare(a *app, change func(), at uint64) {
	before := t.wants(a)
	change()
	t.w.ledger.want(before, t.wants(a), at)
}

// settled says why the resource of an app is not in the state that it declares; nil if it is.
func (t *tenant) settled(ctx context.Context, a *app) error {
	cr := t.resource(a)
	err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr)
	if !a.exists {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s/%s still exists (%w): %+v", t.name, a.name, err, cr.Status.Conditions)
	}
	if err != nil {
		return err
	}
	if err := hasCondition(cr.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue); err != nil || cr.Status.ObservedGeneration != cr.Generation {
		return fmt.Errorf("generation %d of %s/%s is not accepted: %w", cr.Generation, t.name, a.name, err)
	}
	if a.manual && a.run == "" {
		return nil
	}
	revision := a.run
	if !a.manual {
		revision = t.repos[a.spec.repo].heads[a.spec.branch].commit
	}
	// A manual one may be OutOfSync: a newer commit waits for a sync run.
	if st := cr.Status; (st.Sync.Status != "Synced" && !a.manual) || st.Health.Status != "Healthy" || st.Sync.Revision != revision {
		return fmt.Errorf("%s/%s is not Synced and Healthy at %s: %+v", t.name, a.name, revision, st)
	}
	if err := t.tells(a, revision, cr.Status); err != nil {
		return err
	}
	return t.shows(a, cr.Status.Resources)
}

// tells compares what a status says about the source, the destination and the runs with the app.
func (t *tenant) tells(a *app, revision string, st v1alpha1.GitOpsDeploymentStatus) error {
	s := a.spec
	state := st.ReconciledState
	if state == nil || state.Source.RepoURL != t.repos[s.repo].url || state.Source.Path != fmt.Sprintf("%s-%d", a.name, s.variant) || state.Source.Branch != s.branch ||
		state.Destination.Namespace != t.targets[s.target] || (s.env != "" && state.Destination.Name != s.env) {
		return fmt.Errorf("the state of %s/%s is of %+v, want %+v", t.name, a.name, state, s)
	}
	if !slices.ContainsFunc(st.History, func(h v1alpha1.RevisionHistory) bool { return h.Revision == revision }) {
		return fmt.Errorf("the history of %s/%s is %+v, want %s in it", t.name, a.name, st.History, revision)
	}
	if op := st.OperationState; a.manual && (op == nil || op.Revision != revision || op.Phase != "Succeeded") {
		return fmt.Errorf("the operation of %s/%s is %+v, want %s", t.name, a.name, op, revision)
	}
	return nil
}

// shows compares the objects in a status with those of the app.
func (t *tenant) shows(a *app, list []v1alpha1.ResourceStatus) error {
	want := t.has(a)
	for _, r := range list {
		if _, ok := want[object{r.Namespace, r.Name}]; !ok || r.Kind != "ConfigMap" || r.Status != "Synced" {
			return fmt.Errorf("%s/%s shows %+v, want %v", t.name, a.name, r, want)
		}
	}
	if len(list) != len(want) {
		return fmt.Errorf("%s/%s shows %d objects, want %v", t.name, a.name, len(list), want)
	}
	return nil
}

// hasCondition checks a condition.
func hasCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) error {
	if c := meta.FindStatusCondition(conditions, kind); c == nil || c.Status != status {
		var all []string
		for _, c := range conditions {
			all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return fmt.Errorf("condition %s is not %s: %s", kind, status, strings.Join(all, "; "))
	}
	return nil
}
