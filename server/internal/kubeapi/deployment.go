package kubeapi

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// deploymentControl has the use cases of GitOpsDeployments.
type deploymentControl interface {
	ApplyDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) error
	OwnedDeployments(ctx context.Context, p auth.Principal, tenant string, revisions int) ([]control.OwnedDeployment, error)
	DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) (fleet.Operation, error)
	DeleteDeploymentHoldProtected(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) (fleet.Operation, error)
	ReleaseProtected(ctx context.Context, p auth.Principal, tenant string) error
	LocalEnvironment(ctx context.Context, p auth.Principal, tenant, cluster string) (string, error)
}

// deploymentKind processes GitOpsDeployments.
type deploymentKind struct{ *shared }

func (k *deploymentKind) object() client.Object { return &v1alpha1.GitOpsDeployment{} }

func (k *deploymentKind) reconcile(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	return handle(ctx, k.shared, resource{v1alpha1.KindGitOpsDeployment, name}, actions[*v1alpha1.GitOpsDeployment]{
		apply: k.apply, delete: k.delete, status: func(cr *v1alpha1.GitOpsDeployment) any { return cr.Status },
	})
}

// apply stores the spec if it is new, and reads the state.
func (k *deploymentKind) apply(ctx context.Context, r resource, cr *v1alpha1.GitOpsDeployment) error {
	if err := k.ensureFinalizer(ctx, cr); err != nil {
		return err
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	p := principal(tenant, ownerFor(r.kind, cr), cr)
	e, version := k.index.get(r), versionOf(cr)
	stored := e.uid == cr.UID && e.applied == version && !e.waiting && !p.AcceptRewound
	if stored {
		accept(cr) // the write of the status in which it was accepted may have failed
		known, err := k.observe(ctx, r, e, tenant, p, cr)
		if err != nil || known {
			return err
		}
	}
	e = entry{tenant: tenant.ID, uid: cr.UID, applied: version, subjects: e.subjects}
	// Before the attempt: a change that ends the wait must not come between the attempt and the entry.
	e.waiting = true
	k.index.put(r, e)
	err = k.store(ctx, tenant, p, cr)
	cause, final := refused(err)
	if err != nil && !final {
		return err
	}
	if final {
		cr.Status.ObservedGeneration = cr.Generation
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionFalse, deploymentCause(err, cause))
		_, err = k.observe(ctx, r, e, tenant, p, cr)
		return err
	}
	e.waiting = false
	for _, run := range k.index.waitingRuns(tenant.ID) {
		k.enqueue(run)
	}
	if stored || p.AcceptRewound {
		accept(cr)
		_, err = k.observe(ctx, r, e, tenant, p, cr)
		return err
	}
	// The specs of other resources come before the status of this one.
	k.index.put(r, e)
	k.enqueue(r)
	return nil
}

// accept tells that control has stored the spec.
func accept(cr *v1alpha1.GitOpsDeployment) {
	cr.Status.ObservedGeneration = cr.Generation
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionTrue, fleet.Cause{Reason: fleet.ReasonAccepted, Message: "the spec is stored"})
}

// deploymentCause gives an unknown environment its own reason.
func deploymentCause(err error, cause fleet.Cause) fleet.Cause {
	for _, problem := range fleet.Problems(err) {
		if problem.Field == "environment" {
			cause.Reason = fleet.ReasonEnvironmentNotFound
		}
	}
	return cause
}

// store passes the spec to control.
func (k *deploymentKind) store(ctx context.Context, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.GitOpsDeployment) error {
	req := deploymentRequest(cr)
	if req.Environment == "" {
		cluster, err := k.cluster.uid(ctx)
		if err != nil {
			return err
		}
		if req.Environment, err = k.control.LocalEnvironment(ctx, p, tenant.Name, cluster); err != nil {
			return err
		}
	}
	return k.control.ApplyDeployment(ctx, p, tenant.Name, req)
}

// observe reads the state of what the resource created into its status. It returns false if that does not exist, or misses
// its owner: then the spec has to be stored again.
func (k *deploymentKind) observe(ctx context.Context, r resource, e entry, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.GitOpsDeployment) (bool, error) {
	for {
		d, err := k.ownedDeployment(ctx, tenant, p)
		if err != nil {
			return false, err
		}
		if d == nil {
			k.index.put(r, e)
			cr.Status.Sync, cr.Status.Health = v1alpha1.SyncStatus{Status: "Unknown"}, v1alpha1.HealthStatus{Status: "Unknown"}
			return false, nil
		}
		subjects := deploymentSubjects(d.DeploymentView)
		known := slices.Equal(subjects, e.subjects)
		e.subjects = subjects
		k.index.put(r, e)
		if !known { // a change of a new subject may have come before the entry
			continue
		}
		deploymentStatus(cr, *d)
		return (d.Owner == nil || d.Owner.MissingSince.IsZero()) && !k.lost(cr, d.DeploymentView), nil
	}
}

// ownedDeployment returns the deployment that the resource of p created; nil if there is none.
func (k *deploymentKind) ownedDeployment(ctx context.Context, tenant fleet.Tenant, p auth.Principal) (*control.OwnedDeployment, error) {
	owned, err := k.control.OwnedDeployments(ctx, p, tenant.Name, maxHistory)
	if err != nil {
		return nil, err
	}
	for i := range owned {
		if owned[i].DeletedAt.IsZero() {
			return &owned[i], nil
		}
	}
	return nil, nil
}

// lost reports whether a deployment without a destination has no agent any more: another one may have taken its place.
func (k *deploymentKind) lost(cr *v1alpha1.GitOpsDeployment, view control.DeploymentView) bool {
	return cr.Spec.Destination.Environment == "" && !slices.ContainsFunc(view.Targets, func(t control.TargetView) bool { return t.AgentID != "" })
}

func deploymentSubjects(view control.DeploymentView) []string {
	out := []string{string(view.ID), string(view.RepositoryID), string(view.EnvironmentID)}
	for _, t := range view.Targets {
		out = append(out, string(t.AgentID))
	}
	slices.Sort(out)
	return out
}
