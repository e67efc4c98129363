package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// wait is how long a tenant waits for the effect of a step at most. With faults, it may take longer.
const wait = 3 * time.Second

// play does the steps of a script, or random ones.
func (t *tenant) play(ctx context.Context, rng *rand.Rand, p plan) error {
	for i, step := range p.script {
		for _, name := range []string{"web", "api"} {
			if err := t.scripted(ctx, rng, step, t.apps[name]); err != nil {
				return fmt.Errorf("step %d of %s: %w", i, t.name, err)
			}
		}
		t.waits(ctx, t.apps["web"])
	}
	for i := range p.steps {
		a := t.apps[[]string{"web", "api", "job", own}[rng.IntN(4)]]
		if a == nil {
			a = t.apps["web"]
		}
		if err := t.step(ctx, rng, a); err != nil {
			return fmt.Errorf("step %d of %s: %w", i, t.name, err)
		}
		if rng.IntN(3) > 0 {
			t.waits(ctx, a)
		}
		if i == p.steps/2 {
			if err := t.deleteClaim(ctx); err != nil {
				return err
			}
		}
		if t.pushEnv == nil || i >= len(pushScript) {
			continue
		}
		if err := t.pushStep(ctx, rng, pushScript[i]); err != nil {
			return fmt.Errorf("push step %d of %s: %w", i, t.name, err)
		}
	}
	return t.pushFaults(ctx, rng)
}

// waits waits until the resource of an app has its state, or for a time.
func (t *tenant) waits(ctx context.Context, a *app) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for ctx.Err() == nil && t.settled(ctx, a) != nil {
		pause(ctx, 20*time.Millisecond)
	}
}

// scripted does the step of a name.
func (t *tenant) scripted(ctx context.Context, rng *rand.Rand, step string, a *app) error {
	switch {
	case step == "create" && !a.exists:
		return t.creates(ctx, rng, a)
	case step == "edit" && a.exists:
		return t.edit(ctx, a, t.another(rng, a.spec))
	case step == "lose" && a.exists:
		return t.loses(ctx, a)
	case step == "delete" && a.exists:
		return t.remove(ctx, a)
	}
	return nil // an earlier step is not done yet
}

// step does one step with an app.
func (t *tenant) step(ctx context.Context, rng *rand.Rand, a *app) error {
	switch n := rng.IntN(20); {
	case n == 0:
		return t.rotate(ctx, rng)
	case n <= 2:
		return t.pushes(rng)
	case !a.exists:
		return t.creates(ctx, rng, a)
	case n <= 3:
		return t.relabels(ctx)
	case n == 10:
		return t.mistakes(ctx, a)
	case n <= 4 && !a.manual:
		return t.loses(ctx, a)
	case n <= 7:
		t.note("delete %s", a.name)
		return t.remove(ctx, a)
	case n <= 9:
		t.note("delete %s and create it again", a.name)
		if err := t.remove(ctx, a); err != nil {
			return err
		}
		return t.creates(ctx, rng, a)
	case a.manual && n <= 11:
		return t.terminates(ctx, rng, a)
	case a.manual:
		_, err := t.syncs(ctx, rng, a)
		return err
	}
	s := t.another(rng, a.spec)
	t.note("edit %s: %+v", a.name, s)
	return t.edit(ctx, a, s)
}

// another returns a spec that differs in one or two fields.
func (t *tenant) another(rng *rand.Rand, s spec) spec {
	for range 1 + rng.IntN(2) {
		switch n := rng.IntN(5); {
		case n == 0:
			s.repo = map[string]string{openRepo: closedRepo, closedRepo: openRepo}[s.repo]
		case n == 1:
			s.branch = map[string]string{mainBranch: nextBranch, nextBranch: mainBranch}[s.branch]
		case n == 2 && s.env != "":
			s.target = 1 - s.target
		case n == 3 && s.env != "":
			s.env = map[string]string{edge: also, also: edge, customer: customer}[s.env]
		default:
			s.variant = (s.variant + 1 + rng.IntN(variants-1)) % variants
		}
	}
	return s
}

// creates creates the resource of an app, when an earlier one is gone; not at all if that takes too long.
func (t *tenant) creates(ctx context.Context, rng *rand.Rand, a *app) error {
	s := source
	switch a.name {
	case pushed:
		s.env = customer
	case own:
		s.env, s.target = "", 2
	}
	if !a.manual {
		s = t.another(rng, s)
	}
	finalizer := rng.IntN(3) == 0
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		err := t.create(ctx, a, s, finalizer)
		if !apierrors.IsAlreadyExists(err) {
			t.note("create %s: %+v, finalizer %v: %v", a.name, s, finalizer, err)
			return err
		}
		if bounded.Err() != nil {
			t.note("%s is still being deleted", a.name)
			return nil
		}
		pause(bounded, 20*time.Millisecond)
	}
}

// mistakes makes edits that are refused, and one that cannot be done. The objects must stay meanwhile.
func (t *tenant) mistakes(ctx context.Context, a *app) error {
	t.note("mistakes in %s", a.name)
	for i, mistake := range []func(*v1alpha1.GitOpsDeploymentSpec){
		func(s *v1alpha1.GitOpsDeploymentSpec) { s.Source.Path = "" },
		func(s *v1alpha1.GitOpsDeploymentSpec) { s.Source.Path = "/" },
		func(s *v1alpha1.GitOpsDeploymentSpec) { s.Destination = v1alpha1.Destination{Namespace: "x"} },
		func(s *v1alpha1.GitOpsDeploymentSpec) { s.Type = "sometimes" },
	} {
		if err := t.change(ctx, a, mistake); !apierrors.IsInvalid(err) {
			return fmt.Errorf("mistake %d is accepted: %w", i, err)
		}
	}
	const nowhere = "nowhere"
	err := t.change(ctx, a, func(s *v1alpha1.GitOpsDeploymentSpec) {
		s.Destination = v1alpha1.Destination{Environment: nowhere, Namespace: "x"}
	})
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		cr := t.resource(a)
		if err := t.w.Get(bounded, client.ObjectKeyFromObject(cr), cr); err != nil {
			return err
		}
		c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionAccepted)
		if c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, nowhere) && c.ObservedGeneration == cr.Generation {
			return t.edit(ctx, a, a.spec)
		}
		pause(bounded, 20*time.Millisecond)
	}
}

// relabels changes the labels of the agent.
func (t *tenant) relabels(ctx context.Context) error {
	label := t.next("label")
	t.note("label the environment %s", label)
	for {
		var env v1alpha1.ManagedEnvironment
		if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: edge}, &env); err != nil {
			return err
		}
		env.Spec.DisconnectedCluster.Labels = map[string]string{"label": label}
		if err := t.w.Update(ctx, &env); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// loses removes the resource of an app without a deletion that the server could see, as a restored backup of the cluster
// does, and creates it again. The objects must stay meanwhile.
func (t *tenant) loses(ctx context.Context, a *app) error {
	t.note("lose %s", a.name)
	for {
		cr := t.resource(a)
		if err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr); err != nil {
			return err
		}
		cr.Finalizers = nil
		err := t.w.Update(ctx, cr)
		if err == nil {
			err = t.w.Delete(ctx, cr, client.Preconditions{ResourceVersion: new(cr.ResourceVersion)})
		}
		if apierrors.IsConflict(err) { // the server has set its finalizer again
			continue
		}
		if err != nil {
			return err
		}
		cr = t.resource(a)
		t.fill(cr, a, a.spec)
		if err := t.w.Create(ctx, cr); err != nil {
			return err
		}
		return t.takesOver(ctx, cr)
	}
}

// takesOver waits until a resource has what an earlier one with its name created: until then, its deletion deletes nothing.
func (t *tenant) takesOver(ctx context.Context, cr *v1alpha1.GitOpsDeployment) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err := t.w.Get(bounded, client.ObjectKeyFromObject(cr), cr); err != nil {
			return err
		}
		if hasCondition(cr.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue) == nil {
			return nil
		}
		pause(bounded, 20*time.Millisecond)
	}
}

// syncs creates a SyncRun of any commit.
func (t *tenant) syncs(ctx context.Context, rng *rand.Rand, a *app) (*v1alpha1.SyncRun, error) {
	r := t.repos[a.spec.repo]
	c := r.heads[[]string{mainBranch, nextBranch}[rng.IntN(2)]]
	cr := &v1alpha1.SyncRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: t.next("run")}, Spec: v1alpha1.SyncRunSpec{GitOpsDeploymentName: a.name, RevisionID: c.commit},
	}
	t.note("run %s of %s: %s", cr.Name, a.name, c.commit)
	if err := t.w.Create(ctx, cr); err != nil {
		return cr, err
	}
	a.run = c.commit
	return cr, nil
}

// terminates creates a SyncRun, deletes it, and creates another one, so that the final state is known.
func (t *tenant) terminates(ctx context.Context, rng *rand.Rand, a *app) error {
	run, err := t.syncs(ctx, rng, a)
	if err != nil {
		return err
	}
	t.note("delete run %s", run.Name)
	if err := t.w.Delete(ctx, run); err != nil {
		return err
	}
	_, err = t.syncs(ctx, rng, a)
	return err
}

// pushes pushes new values.
func (t *tenant) pushes(rng *rand.Rand) error {
	name, branch := []string{openRepo, closedRepo}[rng.IntN(2)], []string{mainBranch, nextBranch}[rng.IntN(2)]
	c, err := t.push(t.repos[name], branch)
	t.note("push %s to %s of %s", c.value, branch, name)
	return err
}

// rotate changes the credential at the Git server and in the Secret, with a mistake in between.
func (t *tenant) rotate(ctx context.Context, rng *rand.Rand) error {
	data, err := t.newCredential()
	if err != nil {
		return err
	}
	t.note("rotate the %s", t.credentialKey)
	if rng.IntN(2) == 0 {
		if err := t.putKey(ctx, secretName, t.credentialKey, "wrong"); err != nil {
			return err
		}
	}
	return t.putKey(ctx, secretName, t.credentialKey, data[t.credentialKey])
}

// putKey writes a key of a Secret.
func (t *tenant) putKey(ctx context.Context, name, key, value string) error {
	for {
		var s corev1.Secret
		if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: name}, &s); err != nil {
			return client.IgnoreNotFound(err)
		}
		s.Data[key] = []byte(value)
		if err := t.w.Update(ctx, &s); !apierrors.IsConflict(err) {
			return err
		}
	}
}
