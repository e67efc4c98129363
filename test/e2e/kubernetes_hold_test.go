package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// Protected kinds of a deleted resource with the finalizer: named, held, and deleted only after a confirmation.
//
// covers: K2
func TestProtectedKindsOfADeletedResourceAreHeld(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, tenant *crTenant) {
		for _, test := range []struct {
			name string
			run  func(*testing.T, *crTenant)
		}{
			{"deleted after a confirmation", claimUntilConfirmed},
			{"kept without the finalizer", claimUntilFinalizerRemoved},
			{"kept without any finalizer, server down", claimUntilForgotten},
		} {
			if !t.Run(test.name, func(t *testing.T) { test.run(t, tenant) }) {
				return
			}
		}
	})
}

func claimOf(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s, namespace: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n", name, namespace)
}

// deployWithClaim creates a GitOpsDeployment with the finalizer, of a ConfigMap, a PersistentVolumeClaim and more files.
func (t *crTenant) deployWithClaim(tb testing.TB, name string, more ...string) *v1alpha1.GitOpsDeployment {
	tb.Helper()
	files := map[string]string{name + "/cm.yaml": configMap(t.target, "cm-"+name, "1"), name + "/claim.yaml": claimOf(t.target, "data-"+name)}
	for i, text := range more {
		files[fmt.Sprintf("%s/more-%d.yaml", name, i)] = text
	}
	commit := t.repo.push(tb, files)
	d := t.deployment(name, name)
	d.Finalizers = []string{v1alpha1.ResourcesFinalizer}
	t.create(tb, d)
	t.await(tb, d.Name, d, func() error { // nothing binds the claim, so that its health depends on the engine
		if d.Status.Sync.Status != "Synced" || d.Status.Sync.Revision != commit || len(d.Status.Resources) != len(files) {
			return fmt.Errorf("not synced: %+v", d.Status)
		}
		return nil
	})
	return d
}

// deleteHeld deletes a resource and waits until exactly these objects are held.
func (t *crTenant) deleteHeld(tb testing.TB, d *v1alpha1.GitOpsDeployment, objects ...string) {
	tb.Helper()
	if err := t.Delete(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	t.awaitHeld(tb, d, objects...)
}

// awaitHeld waits until a deleted resource names exactly these objects as held, and what to do.
func (t *crTenant) awaitHeld(tb testing.TB, d *v1alpha1.GitOpsDeployment, objects ...string) {
	tb.Helper()
	t.await(tb, d.Name, d, func() error {
		if err := hasCondition(d.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "DeletionHeld"); err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type != v1alpha1.ConditionDeleted {
				continue
			}
			for _, want := range append([]string{fmt.Sprint(len(objects), " objects"), "confirm-prune " + d.Name, v1alpha1.ResourcesFinalizer}, objects...) {
				if !strings.Contains(c.Message, want) {
					return fmt.Errorf("%q does not name %q", c.Message, want)
				}
			}
		}
		return nil
	})
	var list apiv1.List[apiv1.HeldPrune]
	if err := t.Call(tb.Context(), "GET", "/tenants/"+t.ns+"/deployments/"+d.Name+"/held-prunes", nil, &list); err != nil || len(list.Items) != len(objects) {
		tb.Errorf("REST lists %+v, %v", list.Items, err)
	}
}

// claims waits until the target namespace has exactly these PersistentVolumeClaims.
func (t *crTenant) claims(tb testing.TB, want string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if got := t.cluster.Kubectl(tb, "-n", t.target, "get", "persistentvolumeclaims", "-o", "jsonpath={.items[*].metadata.name}"); got != want {
			return fmt.Errorf("the claims are %q, want %q", got, want)
		}
		return nil
	})
}

// confirm confirms the deletion of held objects with the command line.
func (t *crTenant) confirm(tb testing.TB, name string, objects ...string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error { // the agent may not have reported yet
		out, err := t.kedge(tb, append([]string{"deploy", "confirm-prune", name, "--tenant", t.ns}, objects...)...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func claimUntilConfirmed(t *testing.T, tenant *crTenant) {
	extra := tenant.target + "-extra"
	claim, namespace := "PersistentVolumeClaim "+tenant.target+"/data-held", "Namespace "+extra
	d := tenant.deployWithClaim(t, "held", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+extra+"}\n")
	tenant.deleteHeld(t, d, claim, namespace)
	tenant.has(t, "map[]")
	for _, command := range [][]string{{"deploy", "prunes", "held"}, {"doctor"}} {
		out, err := tenant.kedge(t, append(command, "--tenant", tenant.ns)...)
		if want := map[string]string{"deploy": claim, "doctor": "kedge deploy prunes held"}[command[0]]; !strings.Contains(out, want) {
			t.Errorf("kedge %v does not name %q: %v\n%s", command, want, err, out)
		}
	}
	alive := func() {
		t.Helper()
		tenant.claims(t, "data-held")
		if got := tenant.cluster.Kubectl(t, "get", "namespace", extra, "-o", "jsonpath={.metadata.deletionTimestamp}"); got != "" {
			t.Fatalf("the namespace is being deleted since %s", got)
		}
	}
	alive()
	tenant.stopServer(t)
	tenant.startAgain(t)
	tenant.awaitHeld(t, d, claim, namespace)
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	tenant.agent.run(tenant.owner)
	tenant.awaitEnvironment(t, v1alpha1.ConditionConnected, metav1.ConditionTrue)
	tenant.awaitHeld(t, d, claim, namespace)
	alive()

	tenant.confirm(t, "held", claim)
	tenant.claims(t, "")
	tenant.awaitHeld(t, d, namespace)
	if got := tenant.cluster.Kubectl(t, "get", "namespace", extra, "-o", "jsonpath={.metadata.deletionTimestamp}"); got != "" {
		t.Fatalf("the namespace, which was not confirmed, is being deleted since %s", got)
	}
	tenant.confirm(t, "held", namespace)
	tenant.awaitGone(t, d.Name, d)
	gone(t, tenant.cluster, "get", "namespace", extra)
}

// kept checks that a claim stays and that nothing of its deployment is left on the server.
func (t *crTenant) kept(tb testing.TB, name string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if answer := t.rest().ask(tb, "GET", "deployments/"+name+"/held-prunes", nil); answer.Code != 404 {
			return fmt.Errorf("held prunes of a deployment that is gone: %d %s", answer.Code, answer.Body)
		}
		return nil
	})
	t.event(tb, "TargetDeleted", "PersistentVolumeClaim "+t.target+"/data-"+name)
	t.has(tb, "map[]")
	t.claims(tb, "data-"+name)
	t.cluster.Kubectl(tb, "-n", t.target, "delete", "persistentvolumeclaim", "data-"+name)
}

func claimUntilFinalizerRemoved(t *testing.T, tenant *crTenant) {
	d := tenant.deployWithClaim(t, "released")
	tenant.deleteHeld(t, d, "PersistentVolumeClaim "+tenant.target+"/data-released")
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Finalizers = []string{v1alpha1.ServerFinalizer} })
	tenant.awaitGone(t, d.Name, d)
	tenant.kept(t, "released")
}

func claimUntilForgotten(t *testing.T, tenant *crTenant) {
	d := tenant.deployWithClaim(t, "forgotten")
	tenant.deleteHeld(t, d, "PersistentVolumeClaim "+tenant.target+"/data-forgotten")
	tenant.stopServer(t)
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Finalizers = nil })
	tenant.awaitGone(t, d.Name, d)
	tenant.startAgain(t)
	tenant.kept(t, "forgotten")
}
