package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// environmentControl has the use cases of ManagedEnvironments.
type environmentControl interface {
	Agent(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentView, error)
	EnrollAgent(ctx context.Context, p auth.Principal, tenant string, req control.EnrollAgent) (control.Enrollment, error)
	UpdateAgent(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateAgent, match control.Match) (control.AgentView, error)
	DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
	AgentTokens(ctx context.Context, p auth.Principal, tenant, agent string, page store.Page) ([]fleet.AgentToken, error)
	CreateAgentToken(ctx context.Context, p auth.Principal, tenant, agent, chosen string) (fleet.AgentToken, string, error)
	RevokeAgentToken(ctx context.Context, p auth.Principal, tenant, agent string, id fleet.TokenID) error
	Environment(ctx context.Context, p auth.Principal, tenant, name string) (control.EnvironmentView, error)
	CreateEnvironment(ctx context.Context, p auth.Principal, tenant string, req control.CreateEnvironment) (control.EnvironmentView, error)
	UpdateEnvironment(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateEnvironment, match control.Match) (control.EnvironmentView, error)
	DeleteEnvironment(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

// registrationToken is the key of the token in a registration Secret.
const registrationToken = "registrationToken"

// environmentKind processes ManagedEnvironments.
type environmentKind struct{ *shared }

func (k *environmentKind) object() client.Object { return &v1alpha1.ManagedEnvironment{} }

func (k *environmentKind) reconcile(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	return handle(ctx, k.shared, resource{v1alpha1.KindManagedEnvironment, name}, actions[*v1alpha1.ManagedEnvironment]{
		apply: k.apply, delete: k.delete, status: func(cr *v1alpha1.ManagedEnvironment) any { return cr.Status },
	})
}

func (k *environmentKind) apply(ctx context.Context, r resource, cr *v1alpha1.ManagedEnvironment) error {
	if err := k.ensureFinalizer(ctx, cr); err != nil {
		return err
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	p := principal(tenant, ownerFor(r.kind, cr), cr)
	e := entry{tenant: tenant.ID, uid: cr.UID, subjects: k.index.get(r).subjects, waiting: true}
	k.index.put(r, e)
	err = k.store(ctx, r, tenant, p, cr)
	cause, final := refused(err)
	if err != nil && !final {
		return err
	}
	cr.Status.ObservedGeneration = cr.Generation
	e.waiting, e.recheck = final && !ofSecret(cause), final
	if final {
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, cause)
	} else if cr.Spec.APIURL == "" {
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionReady, metav1.ConditionTrue, fleet.Cause{Reason: fleet.ReasonReady, Message: "deployments can use the environment"})
	}
	return k.observe(ctx, r, e, tenant, p, cr)
}

// ofSecret reports whether a cause is the content of a Secret: only a change of the Secret, or of the resource, ends it.
func ofSecret(c fleet.Cause) bool {
	switch c.Reason {
	case fleet.ReasonSecretNotFound, fleet.ReasonSecretInvalid, fleet.ReasonTokenRefused,
		fleet.ReasonKubeconfigMissing, fleet.ReasonKubeconfigInvalid, fleet.ReasonKubeconfigRefused, fleet.ReasonContextNotFound:
		return true
	}
	return false
}

// store passes the spec, and the token of the Secret that it names, to control.
func (k *environmentKind) store(ctx context.Context, r resource, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.ManagedEnvironment) error {
	if cr.Spec.APIURL != "" {
		return k.storePush(ctx, r, tenant, p, cr)
	}
	names, labels := []string{cr.Name}, map[string]string{}
	if cluster := cr.Spec.DisconnectedCluster; cluster != nil {
		token, err := k.registrationToken(ctx, r, types.NamespacedName{Namespace: cr.Namespace, Name: cluster.ClusterRegistrationSecret})
		if err != nil {
			return err
		}
		if err := k.storeAgent(ctx, tenant, p, cr.Name, cluster, token); err != nil {
			return err
		}
	} else {
		k.watches.use(r)
		names, labels = cr.Spec.Agents.Names, cr.Spec.Agents.MatchLabels
	}
	_, err := k.control.UpdateEnvironment(ctx, p, tenant.Name, cr.Name, control.UpdateEnvironment{Agents: &names, MatchLabels: &labels}, control.Match{})
	if errors.Is(err, store.ErrNotFound) {
		_, err = k.control.CreateEnvironment(ctx, p, tenant.Name, control.CreateEnvironment{Name: cr.Name, Agents: names, MatchLabels: labels})
	}
	return err
}

func (k *environmentKind) registrationToken(ctx context.Context, r resource, name types.NamespacedName) (string, error) {
	secret, err := k.secret(ctx, r, name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(secret.Data[registrationToken]))
	if token == "" {
		return "", refuse(fleet.ReasonSecretInvalid, fmt.Sprintf("Secret %q in namespace %q has no key %q", name.Name, name.Namespace, registrationToken))
	}
	return token, nil
}

// secret reads a Secret in the namespace of a resource, and processes the resource again when the Secret changes.
func (s *shared) secret(ctx context.Context, r resource, name types.NamespacedName) (*corev1.Secret, error) {
	s.watches.use(r, secretNamed(name))
	var secret corev1.Secret
	err := s.client.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		return nil, refuse(fleet.ReasonSecretNotFound, fmt.Sprintf("there is no Secret %q in namespace %q: create it in the namespace of this resource", name.Name, name.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return &secret, nil
}

// observe reads the state of what the resource created into its status.
func (k *environmentKind) observe(ctx context.Context, r resource, e entry, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.ManagedEnvironment) error {
	var subjects []string
	if cr.Spec.DisconnectedCluster == nil {
		meta.RemoveStatusCondition(&cr.Status.Conditions, v1alpha1.ConditionConnected)
	} else {
		agent, err := k.control.Agent(ctx, p, tenant.Name, cr.Name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil {
			subjects = append(subjects, string(agent.ID))
			setConnected(cr, agent)
		}
	}
	env, err := k.control.Environment(ctx, p, tenant.Name, cr.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil {
		subjects = append(subjects, string(env.ID))
		cr.Status.Agents = env.Agents
		subjects = append(subjects, observePush(cr, env, !e.recheck)...)
	}
	e.subjects = subjects
	k.index.put(r, e)
	return nil
}

func setConnected(cr *v1alpha1.ManagedEnvironment, agent control.AgentView) {
	for _, c := range agent.Conditions() {
		if c.Type == fleet.ConditionConnected {
			setAt(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionConnected, metav1.ConditionStatus(c.Status), c.Cause, c.LastTransition)
		}
	}
}

// delete removes environment and agent when nothing uses them. No object in any cluster is deleted.
func (k *environmentKind) delete(ctx context.Context, r resource, cr *v1alpha1.ManagedEnvironment) error {
	if !controllerutil.ContainsFinalizer(cr, v1alpha1.ServerFinalizer) {
		return nil
	}
	removed, err := k.definitionDeleted(ctx, r.kind, cr)
	if err != nil {
		return err
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	if removed {
		return k.releaseAll(ctx, r, cr, tenant.ID, v1alpha1.ServerFinalizer)
	}
	k.index.put(r, entry{tenant: tenant.ID, uid: cr.UID, waiting: true, subjects: k.index.get(r).subjects})
	p := principal(tenant, ownerFor(r.kind, cr), cr)
	err = k.remove(ctx, tenant, p, cr)
	if cause, final := refused(err); final {
		cause.Message += "; if the cluster is lost, set the annotation " + v1alpha1.AbandonDeletions + ": its objects stay"
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, cause)
		return k.storeInUse(ctx, r, tenant, p, cr)
	}
	if err != nil {
		return err
	}
	return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer)
}

// storeInUse passes the spec and the Secret of a resource whose deletion waits to control: deployments that still use the
// environment need a credential that was replaced meanwhile, to be deleted too. The Secret may be gone already.
func (k *environmentKind) storeInUse(ctx context.Context, r resource, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.ManagedEnvironment) error {
	if p.AbandonDeletions {
		return nil
	}
	_, err := k.control.Environment(ctx, p, tenant.Name, cr.Name)
	if errors.Is(err, store.ErrNotFound) { // nothing is created again
		return nil
	}
	if err == nil {
		err = k.store(ctx, r, tenant, p, cr)
	}
	if _, final := refused(err); final {
		return nil
	}
	return err
}

// remove deletes the environment and the agent that a resource created. The environment is deleted first, because that is
// refused while deployments use it. If the cluster is lost, no deployment waits for the agent any more.
func (k *environmentKind) remove(ctx context.Context, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.ManagedEnvironment) error {
	agent := func() error {
		return ignoreOthers(k.control.DeleteAgent(ctx, p, tenant.Name, cr.Name, control.Match{}))
	}
	if p.AbandonDeletions {
		if err := agent(); err != nil {
			return err
		}
	}
	if err := ignoreOthers(k.control.DeleteEnvironment(ctx, p, tenant.Name, cr.Name, control.Match{})); err != nil {
		return err
	}
	return agent()
}

// ignoreOthers returns nil if there is nothing to delete, or only something that the resource did not create.
func ignoreOthers(err error) error {
	if cause, final := refused(err); errors.Is(err, store.ErrNotFound) || (final && cause.Reason == fleet.ReasonNameInUse) {
		return nil
	}
	return err
}
