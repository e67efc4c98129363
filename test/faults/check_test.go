package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// converges checks that everything gets the state of the final resources.
func (w *world) converges() {
	w.tb.Helper()
	for _, t := range w.tenants {
		if t.pushEnv != nil {
			w.must(t.bringBack(w.tb.Context(), 3*w.limit))
		}
		if job := t.apps["job"]; job.exists { // what earlier sync runs left is not known
			run, err := t.syncs(w.tb.Context(), w.rng(t.index), job)
			w.must(err)
			t.await(run.Name, run, func() error {
				if run.Status.Phase != "Succeeded" {
					return fmt.Errorf("sync run %s is not done: %+v", run.Name, run.Status)
				}
				return nil
			})
		}
	}
	for _, t := range w.tenants {
		t.eventually(func(ctx context.Context) error { return t.settledAll(ctx) })
	}
	for _, t := range w.tenants {
		if t.claims {
			t.claimIsHeld()
		}
	}
}

func (w *world) eventually(check func(ctx context.Context) error) {
	w.tb.Helper()
	testkit.Eventually(w.tb, w.limit, check)
}

// eventually waits longer for a tenant with a push environment: Argo CD repeats a failed sync after up to 3 minutes.
func (t *tenant) eventually(check func(ctx context.Context) error) {
	t.w.tb.Helper()
	limit := t.w.limit
	if t.pushEnv != nil {
		limit *= 3
	}
	testkit.Eventually(t.w.tb, limit, check)
}

// settledAll says what of a tenant is not as declared.
func (t *tenant) settledAll(ctx context.Context) error {
	want := map[object]string{}
	for _, a := range t.apps {
		if err := t.settled(ctx, a); err != nil {
			return err
		}
		if a.manual && a.run == "" {
			continue
		}
		maps.Copy(want, t.has(a))
	}
	cr := &v1alpha1.RepositoryCredential{}
	if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: credential}, cr); err != nil {
		return err
	}
	if err := hasCondition(cr.Status.Conditions, v1alpha1.ConditionValidRepositoryCredential, metav1.ConditionTrue); err != nil {
		return fmt.Errorf("credential of %s: %w", t.name, err)
	}
	env := &v1alpha1.ManagedEnvironment{}
	if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: edge}, env); err != nil {
		return err
	}
	if err := hasCondition(env.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionTrue); err != nil {
		return fmt.Errorf("environment of %s: %w", t.name, err)
	}
	if err := t.restAgrees(ctx); err != nil {
		return err
	}
	if err := t.pushSettled(ctx); err != nil {
		return err
	}
	return t.inCluster(ctx, want)
}

// inCluster compares the objects in the target namespaces.
func (t *tenant) inCluster(ctx context.Context, want map[object]string) error {
	got := map[object]string{}
	for _, ns := range t.targets {
		var list corev1.ConfigMapList
		if err := t.w.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "cm-") {
				got[object{ns, cm.Name}] = cm.Data["value"]
			}
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the cluster has %v of %s, want %v", got, t.name, want)
	}
	return nil
}

// restAgrees checks that the REST API has exactly the deployments of the resources, each with its own objects only.
func (t *tenant) restAgrees(ctx context.Context) error {
	var list apiv1.List[apiv1.Deployment]
	if err := t.w.rest().Call(ctx, "GET", "/tenants/"+t.name+"/deployments?limit=500", nil, &list); err != nil {
		return err
	}
	found := 0
	for _, d := range list.Items {
		if d.Name == claimApp && t.claims {
			continue
		}
		a, ok := t.apps[d.Name]
		if !ok || !a.exists {
			return fmt.Errorf("deployment %s/%s has no resource: %+v", t.name, d.Name, d)
		}
		found++
	}
	for _, a := range t.apps {
		if a.exists {
			found--
		}
	}
	if found != 0 {
		return fmt.Errorf("the server has the deployments %+v of %s", list.Items, t.name)
	}
	return nil
}

// deletesAll deletes all resources: those of the first tenant with their namespace.
func (w *world) deletesAll() {
	w.tb.Helper()
	ctx := w.tb.Context()
	first, others := w.tenants[0], w.tenants[1:]
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: first.name}}
	var now corev1.ConfigMapList
	w.must(w.List(ctx, &now))
	before := versionOf(now.ResourceVersion)
	w.must(w.Delete(ctx, namespace))
	for _, t := range others {
		for _, o := range []client.Object{&v1alpha1.GitOpsDeployment{}, &v1alpha1.SyncRun{}, &v1alpha1.RepositoryCredential{}, &v1alpha1.ManagedEnvironment{}} {
			w.must(w.DeleteAllOf(ctx, o, client.InNamespace(t.name)))
		}
	}
	for _, t := range w.tenants {
		for _, a := range t.apps {
			t.declare(a, func() { a.exists = false }, before)
		}
	}
	first.eventually(func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("namespace %s still exists: %+v", first.name, namespace.Status), err)
		}
		return nil
	})
	for _, t := range w.tenants {
		t.eventually(func(ctx context.Context) error {
			for _, list := range []client.ObjectList{&v1alpha1.GitOpsDeploymentList{}, &v1alpha1.SyncRunList{}, &v1alpha1.RepositoryCredentialList{}, &v1alpha1.ManagedEnvironmentList{}} {
				if err := w.List(ctx, list, client.InNamespace(t.name)); err != nil {
					return err
				}
				if text := fmt.Sprintf("%+v", list); strings.Contains(text, "Name:") && strings.Contains(text, t.name) {
					return fmt.Errorf("%s still has %s", t.name, text)
				}
			}
			if err := t.inArgoCD(ctx); err != nil {
				return err
			}
			return t.inCluster(ctx, map[object]string{})
		})
	}
}

// leftovers are queries for rows that belong to a resource, not to a namespace.
var leftovers = map[string]string{
	"deployments":  "SELECT count(*) FROM deployments",
	"targets":      "SELECT count(*) FROM targets",
	"credentials":  "SELECT count(*) FROM credentials",
	"agents":       "SELECT count(*) FROM agents",
	"environments": "SELECT count(*) FROM environments WHERE name NOT IN ('default', 'in-cluster')",
	"sync runs":    "SELECT count(*) FROM sync_runs",
	"owners":       "SELECT count(*) FROM owners WHERE kind <> 'Namespace'",
}

// leavesNothing stops the server and checks that the database has no row of a resource.
func (w *world) leavesNothing() {
	w.tb.Helper()
	db, err := w.db.open()
	w.must(err)
	defer db.Close()
	w.eventually(func(ctx context.Context) error {
		var n int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM owners WHERE resource_kind = 'tenant' AND missing_since IS NOT NULL").Scan(&n); err != nil || n != 1 {
			return errors.Join(fmt.Errorf("the namespaces of %d tenants are missing, want 1", n), err)
		}
		return nil
	})
	w.server.stop()
	for what, query := range leftovers {
		var n int
		if err := db.QueryRowContext(w.tb.Context(), query).Scan(&n); err != nil {
			w.tb.Errorf("%s: %v", query, err)
		}
		if n > 0 {
			w.tb.Errorf("the database has %d %s that no resource declares", n, what)
		}
	}
}
