package kubeapi

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// kubeconfigKey is the key of the kubeconfig in the Secret of a push environment.
const kubeconfigKey = "kubeconfig"

// storePush passes a push environment, with the kubeconfig of the Secret that it names, to control.
func (k *environmentKind) storePush(ctx context.Context, r resource, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.ManagedEnvironment) error {
	name := types.NamespacedName{Namespace: cr.Namespace, Name: cr.Spec.CredentialsSecret}
	secret, err := k.secret(ctx, r, name)
	if err != nil {
		return err
	}
	kubeconfig := string(secret.Data[kubeconfigKey])
	if kubeconfig == "" {
		return refuse(fleet.ReasonKubeconfigMissing, fmt.Sprintf("Secret %q in namespace %q has no key %q", name.Name, name.Namespace, kubeconfigKey))
	}
	push := &control.PushSpec{
		APIURL: cr.Spec.APIURL, Kubeconfig: kubeconfig, Context: cr.Spec.Context, Namespaces: append([]string{}, cr.Spec.Namespaces...), ClusterResources: cr.Spec.ClusterResources,
	}
	_, err = k.control.UpdateEnvironment(ctx, p, tenant.Name, cr.Name, control.UpdateEnvironment{Push: push}, control.Match{})
	if errors.Is(err, store.ErrNotFound) {
		_, err = k.control.CreateEnvironment(ctx, p, tenant.Name, control.CreateEnvironment{Name: cr.Name, Push: push})
	}
	return err
}

// observePush sets the condition Ready of a push environment whose spec was accepted, and returns the IDs of what it depends
// on.
func observePush(cr *v1alpha1.ManagedEnvironment, env control.EnvironmentView, accepted bool) (subjects []string) {
	if env.Push == nil || cr.Spec.APIURL == "" {
		return nil
	}
	if env.Push.Instance != "" {
		subjects = append(subjects, string(env.Push.Instance))
	}
	if accepted {
		setAt(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionReady, metav1.ConditionStatus(env.Ready.Status), env.Ready.Cause, env.Ready.LastTransition)
	}
	return subjects
}
