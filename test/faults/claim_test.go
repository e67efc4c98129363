package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// claimApp is a GitOpsDeployment with the finalizer that has an object of a protected kind. It is deleted amid faults.
const claimApp = "claim"

var claimFiles = map[string]string{
	"claim/claim.yaml":    "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n",
	"claim/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
}

func (t *tenant) claimResource() *v1alpha1.GitOpsDeployment {
	return &v1alpha1.GitOpsDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: claimApp, Finalizers: []string{v1alpha1.ResourcesFinalizer}},
		Spec: v1alpha1.GitOpsDeploymentSpec{
			Source:      v1alpha1.Source{RepoURL: t.repos[openRepo].url, Path: "claim", TargetRevision: mainBranch},
			Destination: v1alpha1.Destination{Environment: edge, Namespace: t.targets[0]},
		},
	}
}

// addClaim creates the resource before there are faults, and waits until its objects exist.
func (t *tenant) addClaim() {
	t.w.tb.Helper()
	t.claims = true
	t.w.must(t.w.Create(t.w.tb.Context(), t.claimResource()))
	t.eventually(func(ctx context.Context) error { return t.claimObjects(ctx, true, true) })
}

// deleteClaim deletes the resource.
func (t *tenant) deleteClaim(ctx context.Context) error {
	if !t.claims {
		return nil
	}
	t.note("delete %s", claimApp)
	return t.w.Delete(ctx, t.claimResource())
}

// claimObjects says which of the two objects is there against expectation.
func (t *tenant) claimObjects(ctx context.Context, claim, settings bool) error {
	for _, o := range []struct {
		object client.Object
		name   string
		want   bool
	}{{&corev1.PersistentVolumeClaim{}, "data", claim}, {&corev1.ConfigMap{}, "settings", settings}} {
		err := t.w.Get(ctx, types.NamespacedName{Namespace: t.targets[0], Name: o.name}, o.object)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if apierrors.IsNotFound(err) == o.want || (o.want && o.object.GetDeletionTimestamp() != nil) {
			return fmt.Errorf("object %s of %s exists: %v, want %v", o.name, t.name, !o.want, o.want)
		}
	}
	return nil
}

// claimIsHeld checks that the deleted resource waits, names what is held and has the rest deleted, and that a confirmation ends
// it.
func (t *tenant) claimIsHeld() {
	t.w.tb.Helper()
	claim := "PersistentVolumeClaim " + t.targets[0] + "/data"
	cr := t.claimResource()
	t.eventually(func(ctx context.Context) error {
		if err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr); err != nil {
			return err
		}
		c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionDeleted)
		if c == nil || c.Reason != "DeletionHeld" || !strings.Contains(c.Message, claim) {
			return fmt.Errorf("%s/%s does not name %s: %+v", t.name, cr.Name, claim, cr.Status.Conditions)
		}
		return t.claimObjects(ctx, true, false)
	})
	t.eventually(func(ctx context.Context) error {
		return t.w.rest().Call(ctx, http.MethodPost, "/tenants/"+t.name+"/deployments/"+claimApp+"/confirm-prune", apiv1.ConfirmPrune{Objects: []string{claim}}, nil)
	})
	t.eventually(func(ctx context.Context) error {
		if err := t.w.Get(ctx, client.ObjectKeyFromObject(cr), cr); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s/%s still exists (%w): %+v", t.name, cr.Name, err, cr.Status.Conditions)
		}
		return t.claimObjects(ctx, false, false)
	})
	t.claims = false
}
