package kubeapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// credentialControl has the use cases of RepositoryCredentials.
type credentialControl interface {
	ApplyCredential(ctx context.Context, p auth.Principal, tenant string, req control.CreateCredential, url string) (fleet.Credential, control.RepositoryView, error)
	DeleteOwnedCredential(ctx context.Context, p auth.Principal, tenant, name string) error
	CheckRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (fleet.Cause, error)
}

// credentialKind processes RepositoryCredentials.
type credentialKind struct{ *shared }

func (k *credentialKind) object() client.Object { return &v1alpha1.RepositoryCredential{} }

func (k *credentialKind) reconcile(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	return handle(ctx, k.shared, resource{v1alpha1.KindRepositoryCredential, name}, actions[*v1alpha1.RepositoryCredential]{
		apply: k.apply, delete: k.delete, status: func(cr *v1alpha1.RepositoryCredential) any { return cr.Status },
	})
}

func (k *credentialKind) apply(ctx context.Context, r resource, cr *v1alpha1.RepositoryCredential) error {
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
	credential, repo, err := k.store(ctx, r, tenant, p, cr)
	cause, final := refused(err)
	if err != nil && !final {
		return err
	}
	cr.Status.ObservedGeneration = cr.Generation
	if final {
		e.waiting, e.recheck = !ofSecret(cause), true
		k.index.put(r, e)
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionFalse, cause)
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionValidRepositoryURL, metav1.ConditionUnknown, cause)
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionValidRepositoryCredential, metav1.ConditionFalse, cause)
		return nil
	}
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionTrue, fleet.Cause{Reason: fleet.ReasonAccepted, Message: "the credential is stored"})
	if cause, err = k.control.CheckRepository(ctx, p, tenant.Name, repo.ID); err != nil {
		return err
	}
	setValidity(cr, cause)
	e.subjects, e.waiting = []string{string(repo.ID), string(credential.ID)}, false
	e.recheck = cause.Reason == fleet.ReasonRepositoryUnreadable
	k.index.put(r, e)
	return nil
}

// setValidity converts the result of reading the repository.
func setValidity(cr *v1alpha1.RepositoryCredential, cause fleet.Cause) {
	url, credential := metav1.ConditionTrue, metav1.ConditionTrue
	accepted := fleet.Cause{Reason: fleet.ReasonCredentialAccepted, Message: "the repository was read"}
	urlCause, credentialCause := accepted, accepted
	switch cause.Reason {
	case "":
	case fleet.ReasonHostUnknown, fleet.ReasonHostDenied, fleet.ReasonRedirected, fleet.ReasonNotGit:
		url, credential, urlCause, credentialCause = metav1.ConditionFalse, metav1.ConditionUnknown, cause, cause
	case fleet.ReasonRepositoryUnreadable: // another attempt may succeed
		url, credential, urlCause, credentialCause = metav1.ConditionUnknown, metav1.ConditionUnknown, cause, cause
	default:
		url, credential, urlCause, credentialCause = metav1.ConditionUnknown, metav1.ConditionFalse, cause, cause
	}
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionValidRepositoryURL, url, urlCause)
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionValidRepositoryCredential, credential, credentialCause)
}

// store passes the Secret to control, and lets the repository use it.
func (k *credentialKind) store(ctx context.Context, r resource, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.RepositoryCredential) (fleet.Credential, control.RepositoryView, error) {
	secret, err := k.secret(ctx, r, types.NamespacedName{Namespace: cr.Namespace, Name: cr.Spec.Secret})
	if err != nil {
		return fleet.Credential{}, control.RepositoryView{}, err
	}
	req, err := credentialRequest(cr, secret)
	if err != nil {
		return fleet.Credential{}, control.RepositoryView{}, err
	}
	credential, repo, err := k.control.ApplyCredential(ctx, p, tenant.Name, req, cr.Spec.Repository)
	return credential, repo, secretInvalid(err)
}

// credentialRequest reads the keys of a Secret.
func credentialRequest(cr *v1alpha1.RepositoryCredential, secret *corev1.Secret) (control.CreateCredential, error) {
	req := control.CreateCredential{Name: cr.Name, Kind: fleet.CredentialHTTPS, Username: string(secret.Data["username"]), Secret: string(secret.Data["password"])}
	key := "password"
	if strings.HasPrefix(cr.Spec.Repository, "ssh://") {
		key = "sshPrivateKey"
		req.Kind, req.Username, req.Secret, req.KnownHosts = fleet.CredentialSSH, "", string(secret.Data[key]), string(secret.Data["knownHosts"])
	}
	if req.Secret == "" {
		return req, refuse(fleet.ReasonSecretInvalid, fmt.Sprintf("Secret %q in namespace %q has no key %q", secret.Name, secret.Namespace, key))
	}
	return req, nil
}

// secretInvalid gives a refused content of a Secret its own reason.
func secretInvalid(err error) error {
	for _, problem := range fleet.Problems(err) {
		if problem.Field != "repository" {
			return refuse(fleet.ReasonSecretInvalid, problem.Error())
		}
	}
	return err
}

// delete ends the use of the credential and deletes it.
func (k *credentialKind) delete(ctx context.Context, r resource, cr *v1alpha1.RepositoryCredential) error {
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
	err = ignoreOthers(k.control.DeleteOwnedCredential(ctx, principal(tenant, ownerFor(r.kind, cr), cr), tenant.Name, cr.Name))
	if cause, final := refused(err); final {
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, cause)
		return nil
	}
	if err != nil {
		return err
	}
	return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer)
}
