package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// Definitions and namespaces that are deleted with everything in them.
//
// covers: K2, K9
// defect: B18
func TestDeletedDefinitionsAndNamespaces(t *testing.T) {
	t.Parallel()
	tenant := startCRs(t).tenant(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *crTenant)
	}{
		{"definitions deleted", func(t *testing.T, tenant *crTenant) { definitionsDeleted(t, tenant, false) }},
		{"definitions deleted, server down", func(t *testing.T, tenant *crTenant) { definitionsDeleted(t, tenant, true) }},
		{"namespace deleted", namespaceDeleted},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, tenant) }) {
			return
		}
	}
}

func definitionsDeleted(t *testing.T, tenant *crTenant, down bool) {
	name := fmt.Sprint("defined-", down)
	tenant.deploy(t, name)
	uid, before := tenant.uidOf(t, name), len(tenant.deleted(t))
	if down {
		tenant.stopServer(t)
	}
	tenant.cluster.Kubectl(t, "delete", "--wait=false", "crd", "gitopsdeployments.gitops.kedge.dev", "managedenvironments.gitops.kedge.dev",
		"repositorycredentials.gitops.kedge.dev", "syncruns.gitops.kedge.dev")
	if down {
		tenant.startAgain(t)
	}
	gone(t, tenant.cluster, "get", "crd", "gitopsdeployments.gitops.kedge.dev", "managedenvironments.gitops.kedge.dev")
	tenant.event(t, "OwnerMissing", name)
	tenant.define(t)
	tenant.register(t)
	tenant.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionTrue)
	tenant.awaitEnvironment(t, v1alpha1.ConditionConnected, metav1.ConditionTrue)
	if now := tenant.deleted(t)[before:]; len(now) > 0 {
		t.Fatalf("the agent deleted %+v", now)
	}
	tenant.takesOver(t, name, uid)
}

func namespaceDeleted(t *testing.T, tenant *crTenant) {
	tenant.deploy(t, "all")
	other := tenant.deployWithClaim(t, "finalized")
	held := tenant.deployWithClaim(t, "held")
	tenant.deleteHeld(t, held, "PersistentVolumeClaim "+tenant.target+"/data-held")
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.ns}}); err != nil {
		t.Fatal(err)
	}
	// The agent is not connected: what remains says why.
	tenant.await(t, other.Name, other, func() error {
		return hasCondition(other.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "Deleting")
	})
	// The deletion of the namespace ends a hold immediately: the server looks at it again after a minute only.
	testkit.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := tenant.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil {
			return err
		}
		return hasCondition(held.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "Deleting")
	})
	env := &v1alpha1.ManagedEnvironment{}
	tenant.await(t, "my-internal-cluster", env, func() error {
		return hasCondition(env.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "InUse")
	})
	tenant.agent.run(tenant.owner)
	tenant.has(t, "map[]")
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		err := tenant.Get(ctx, types.NamespacedName{Name: tenant.ns}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the namespace still exists"), err)
	})
	tenant.claims(t, "data-finalized data-held")

	// The namespace with the same name is another tenant.
	tenant.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.ns}})
	d := tenant.deployment("all", "all")
	tenant.create(t, d)
	tenant.awaitRefused(t, d, "EnvironmentNotFound")
	if err := tenant.Delete(t.Context(), d); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, d.Name, d)
}
