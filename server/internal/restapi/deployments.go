package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type deploymentControl interface {
	CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error)
	Deployments(ctx context.Context, p auth.Principal, tenant string, f control.ListDeployments) ([]control.DeploymentView, error)
	Deployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error)
	UpdateDeployment(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateDeployment, match control.Match) (control.DeploymentView, error)
	DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) (fleet.Operation, error)
	DeleteDeploymentKeepObjects(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) (fleet.Operation, error)
	DeploymentDeletion(ctx context.Context, p auth.Principal, tenant, name string) (control.Deletion, error)
	SuspendDeployment(ctx context.Context, p auth.Principal, tenant, name, reason string) (control.DeploymentView, error)
	ResumeDeployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error)
	ReleaseDeployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error)
}

var deployments = resource{"deployment", tenant + "/deployments"}

const oneDeployment = tenant + "/deployments/{name}"

type listDeploymentsInput struct {
	InTenant
	Paging
	Environment string   `query:"environment" maxLength:"253" doc:"Name of the environment."`
	Agent       string   `query:"agent" maxLength:"253" doc:"Name of an agent of one of its targets."`
	Repository  string   `query:"repository" maxLength:"2048" doc:"URL of the repository."`
	Sync        string   `query:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Rewound,Detached" doc:"State of at least one target. A source error counts as Failed, also that of a pending spec."`
	Health      string   `query:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown,Stale" doc:"Health of at least one target."`
	Reason      string   `query:"reason" maxLength:"64" pattern:"^[A-Za-z]*$" doc:"Reason of the deployment or of at least one target; see docs/reasons.md."`
	Label       []string `query:"label,explode" doc:"KEY=VALUE; repeatable: deployments that have all of these labels."`
	LabelSelector
	Text string `query:"q" maxLength:"253" doc:"Part of the name, repository URL, path, commit or source error."`
}

func (a *api) registerDeployments() {
	register(a, operation("list-deployments", http.MethodGet, deployments.path,
		"List deployments by name, with the number of their targets in each state", http.StatusOK), deployments, a.listDeployments)
	register(a, operation("create-deployment", http.MethodPost, deployments.path,
		"Create a deployment", http.StatusCreated), deployments, a.createDeployment)
	register(a, operation("get-deployment", http.MethodGet, oneDeployment,
		"Read a deployment with its first targets and, if they are few, all their objects", http.StatusOK), deployments, a.getDeployment)
	register(a, operation("update-deployment", http.MethodPatch, oneDeployment,
		"Change a deployment; repeating a change has no effect. A change that needs a render is pending until its source is rendered", http.StatusOK, http.StatusPreconditionFailed), deployments, a.updateDeployment)
	register(a, operation("delete-deployment", http.MethodDelete, oneDeployment,
		"Delete a deployment: its objects are deleted in every cluster, or kept on request, and it is gone when its agents have confirmed",
		http.StatusAccepted, http.StatusPreconditionFailed), deployments, a.deleteDeployment)
	register(a, operation("preview-deployment-deletion", http.MethodGet, oneDeployment+"/deletion",
		"Preview a deletion: how many objects it would delete, in how many clusters; changes nothing", http.StatusOK), deployments, a.deploymentDeletion)
}

func (a *api) listDeployments(ctx context.Context, p auth.Principal, in *listDeploymentsInput) (*listOutput[apiv1.Deployment], error) {
	labels, err := labelled(in.Label)
	if err != nil {
		return nil, err
	}
	selector, err := labelSelector(in.LabelSelector)
	if err != nil {
		return nil, err
	}
	views, err := a.control.Deployments(ctx, p, in.Tenant, control.ListDeployments{
		Page: in.page(), Environment: in.Environment, Agent: in.Agent, Repository: in.Repository,
		Sync: fleet.SyncState(in.Sync), Health: fleet.Health(in.Health), Reason: fleet.Reason(in.Reason), Labels: labels, Selector: selector, Text: in.Text,
	})
	if err != nil {
		return nil, err
	}
	return paged(views, in.Limit, deploymentJSON, nextDeployment), nil
}

type createDeploymentInput struct {
	InTenant
	Checking
	Body apiv1.CreateDeployment
}

// Checking is the input of requests that store a source.
type Checking struct {
	// A boolean with the default true cannot be distinguished from an absent one.
	Check string `query:"check" enum:"true,false" default:"true" doc:"Read the source first, for at most a few seconds. An unknown host, a refused credential, and a missing revision or path are errors. An unreachable host is a warning in the response."`
}

func (a *api) createDeployment(ctx context.Context, p auth.Principal, in *createDeploymentInput) (*created[apiv1.Deployment], error) {
	b := in.Body
	naming(ctx, b.Name)
	policy, err := newPolicy(b.Policy)
	if err != nil {
		return nil, err
	}
	source, err := sourceOf(b.Source)
	if err != nil {
		return nil, err
	}
	view, err := a.control.CreateDeployment(ctx, p, in.Tenant, control.CreateDeployment{
		Name: b.Name, Labels: b.Labels, Source: source, Environment: b.Environment, Namespace: b.Namespace,
		Policy: &policy, Check: in.Check != "false",
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Deployment]{
		Location: infoFrom(ctx).about.list + "/" + view.Name, ETag: etag(view.ID, view.SpecRevision), Body: deploymentJSON(view),
	}, nil
}

func (a *api) getDeployment(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Deployment], error) {
	return deploymentAnswer(a.control.Deployment(ctx, p, in.Tenant, in.Name))
}

func (a *api) deleteDeployment(ctx context.Context, p auth.Principal, in *deleteDeploymentInput) (*accepted[apiv1.Operation], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	remove := a.control.DeleteDeployment
	if in.KeepObjects {
		remove = a.control.DeleteDeploymentKeepObjects
	}
	done, err := remove(ctx, p, in.Tenant, in.Name, match)
	if err != nil {
		return nil, err
	}
	return operationAccepted(in.Tenant, done), nil
}

func (a *api) deploymentDeletion(ctx context.Context, p auth.Principal, in *Named) (*plain[apiv1.Deletion], error) {
	d, err := a.control.DeploymentDeletion(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Deletion]{apiv1.Deletion(d)}, nil
}

func deploymentAnswer(v control.DeploymentView, err error) (*tagged[apiv1.Deployment], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Deployment]{ETag: etag(v.ID, v.SpecRevision), Body: deploymentJSON(v)}, nil
}

func deploymentJSON(v control.DeploymentView) apiv1.Deployment {
	out := apiv1.Deployment{
		ID: string(v.ID), Name: v.Name, Labels: v.Labels,
		Source: sourceJSON(v.Source, v.Detected), Repository: string(v.RepositoryID),
		Environment: v.Environment, Namespace: v.Namespace, Policy: policyJSON(v.Policy),
		Suspension: suspensionJSON(v.Suspension), Pin: pinJSON(v.Pin), SpecRevision: v.SpecRevision,
		Commit: v.Rendered.Commit, Digest: v.Rendered.Digest, RenderedAt: utc(v.Rendered.At), Volatile: v.Rendered.Volatile, SourceReason: string(v.SourceReason), SourceError: v.SourceError,
		CreatedAt: utc(v.CreatedAt), DeletedAt: utc(v.DeletedAt),
		Sync: string(v.Sync), Health: string(v.Health), Reason: string(v.Reason), Message: v.Message, Conditions: conditionsJSON(v.Conditions()),
		EvaluatedCommit: v.Evaluated, RunningCommit: v.Running, RunningOther: v.RunningOther,
		Held: causeJSON(v.Held), Counts: countsJSON(v.Counts), DeclaredBy: declaredJSON(v.Declared), ManagedBy: managedJSON(v.Owner), Warnings: v.Warnings,
		Pending: pendingJSON(v),
	}
	for _, o := range v.Operations {
		out.Operations = append(out.Operations, operationJSON(o))
	}
	for _, t := range v.Targets {
		out.Targets = append(out.Targets, targetJSON(t))
	}
	if n := len(v.Targets); n > 0 && n < v.Counts.Targets {
		out.MoreTargets = nextTarget(v.Targets[n-1])
	}
	return out
}

func conditionsJSON(conditions []fleet.Condition) []apiv1.Condition {
	out := make([]apiv1.Condition, len(conditions))
	for i, c := range conditions {
		out[i] = apiv1.Condition{
			Type: c.Type, Status: string(c.Status), Reason: string(c.Reason), Message: c.Message,
			LastTransitionTime: utc(c.LastTransition), ObservedGeneration: c.ObservedGeneration,
		}
	}
	return out
}

// causeJSON is nil for no cause.
func causeJSON(c fleet.Cause) *apiv1.Cause {
	if c.IsZero() {
		return nil
	}
	return &apiv1.Cause{Reason: string(c.Reason), Message: c.Message}
}

func causesJSON(causes []fleet.Cause) []apiv1.Cause {
	var out []apiv1.Cause
	for _, c := range causes {
		out = append(out, apiv1.Cause{Reason: string(c.Reason), Message: c.Message})
	}
	return out
}

// pendingJSON returns nil if the shown spec is in force.
func pendingJSON(v control.DeploymentView) *apiv1.PendingSpec {
	if v.Pending == nil {
		return nil
	}
	d := v.InForce
	return &apiv1.PendingSpec{
		SpecRevision: v.Pending.SpecRevision, Reason: string(v.Pending.Reason), Message: v.Pending.String(), By: v.Pending.By,
		InForce: apiv1.Spec{
			Labels: d.Labels, Source: sourceJSON(d.Source, d.Detected), Environment: d.Environment, Namespace: d.Namespace, Policy: policyJSON(d.Policy),
		},
	}
}

func countsJSON(n control.TargetCounts) apiv1.TargetCounts {
	return apiv1.TargetCounts{
		Targets: n.Targets, Ready: n.Ready, Detached: n.Detached, Stale: n.Stale, NeverConnected: n.Never, StaleSince: utc(n.StaleSince),
		HeldPrunes: n.HeldPrunes, Sync: words(n.Sync), Health: words(n.Health),
	}
}

func words[W ~string](counts map[W]int) map[string]int {
	out := make(map[string]int, len(counts))
	for word, n := range counts {
		out[string(word)] = n
	}
	return out
}

func pinJSON(p fleet.Pin) *apiv1.Pin {
	if !p.Active() {
		return nil
	}
	return &apiv1.Pin{Revision: p.Revision, Commit: p.Commit, At: utc(p.At), By: p.By, TerminatedRun: p.TerminatedRun}
}

func targetJSON(t control.TargetView) apiv1.Target {
	out := apiv1.Target{
		ID: string(t.ID), Agent: t.AgentName,
		Sync: string(t.View.Sync), Health: string(t.View.Health), Reason: string(t.View.Reason), Message: t.View.Message, Conditions: conditionsJSON(t.Conditions()),
		AsOf: utc(t.View.AsOf), StaleSince: utc(t.View.StaleSince),
		Generation: t.Desired.Generation, ObservedGeneration: t.Observed.Generation, Commit: t.Desired.Commit,
		HeldPrunes: t.HeldPrunes, Tombstone: t.Desired.Tombstone, DetachedAt: utc(t.DetachedAt), DetachedWhy: t.DetachedWhy,
	}
	for _, o := range t.Objects {
		out.Objects = append(out.Objects, apiv1.Object{
			Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
			Sync: string(o.Sync), Health: string(o.Health), Reason: string(o.Reason), Message: o.Message,
		})
	}
	return out
}

// utc converts times to UTC; zero stays zero.
func utc(t time.Time) time.Time {
	return apiv1.Stamp(t)
}

// nextDeployment returns the start of the page after v. The name alone is not enough: a deployment and earlier
// ones that are being deleted share it.
func nextDeployment(v control.DeploymentView) string { return v.Name + "/" + string(v.ID) }
