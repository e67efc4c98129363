package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type environmentControl interface {
	CreateEnvironment(ctx context.Context, p auth.Principal, tenant string, req control.CreateEnvironment) (control.EnvironmentView, error)
	Environments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]control.EnvironmentView, error)
	Environment(ctx context.Context, p auth.Principal, tenant, name string) (control.EnvironmentView, error)
	UpdateEnvironment(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateEnvironment, match control.Match) (control.EnvironmentView, error)
	SuspendEnvironment(ctx context.Context, p auth.Principal, tenant, name, reason string) (control.EnvironmentView, error)
	ResumeEnvironment(ctx context.Context, p auth.Principal, tenant, name string) (control.EnvironmentView, error)
	DeleteEnvironment(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

var environments = resource{"environment", tenant + "/environments"}

func (a *api) registerEnvironments() {
	one := environments.path + "/{name}"
	register(a, operation("list-environments", http.MethodGet, environments.path, "List environments by name", http.StatusOK), environments, a.listEnvironments)
	register(a, operation("create-environment", http.MethodPost, environments.path, "Create an environment", http.StatusCreated), environments, a.createEnvironment)
	register(a, operation("get-environment", http.MethodGet, one, "Read an environment", http.StatusOK), environments, a.getEnvironment)
	register(a, operation("update-environment", http.MethodPatch, one,
		"Change the agents of an environment; deployments change with them", http.StatusOK, http.StatusPreconditionFailed), environments, a.updateEnvironment)
	register(a, operation("delete-environment", http.MethodDelete, one,
		"Delete an environment that no deployment uses", http.StatusNoContent, http.StatusPreconditionFailed), environments, a.deleteEnvironment)
	register(a, operation("suspend-environment", http.MethodPost, one+"/suspend",
		"Suspend an environment: it gets no new state, and running workloads are not affected", http.StatusOK), environments, a.suspendEnvironment)
	register(a, operation("resume-environment", http.MethodPost, one+"/resume", "Resume an environment", http.StatusOK), environments, a.resumeEnvironment)
}

func (a *api) listEnvironments(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Environment], error) {
	found, err := a.control.Environments(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, environmentJSON, func(e control.EnvironmentView) string { return e.Name }), nil
}

func (a *api) createEnvironment(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateEnvironment]) (*created[apiv1.Environment], error) {
	naming(ctx, in.Body.Name)
	made, err := a.control.CreateEnvironment(ctx, p, in.Tenant, control.CreateEnvironment{
		Name: in.Body.Name, Agents: in.Body.Agents, MatchLabels: in.Body.MatchLabels, Push: pushSpec(in.Body.Push),
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Environment]{
		Location: infoFrom(ctx).about.list + "/" + made.Name, ETag: etag(made.ID, made.SpecRevision), Body: environmentJSON(made),
	}, nil
}

func (a *api) getEnvironment(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Environment], error) {
	return environmentAnswer(a.control.Environment(ctx, p, in.Tenant, in.Name))
}

func (a *api) updateEnvironment(ctx context.Context, p auth.Principal, in *editInput[apiv1.UpdateEnvironment]) (*tagged[apiv1.Environment], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return environmentAnswer(a.control.UpdateEnvironment(ctx, p, in.Tenant, in.Name, control.UpdateEnvironment{
		Agents: givenList(in.Body.Agents), MatchLabels: given(in.Body.MatchLabels), Push: pushSpec(in.Body.Push),
	}, match))
}

func (a *api) deleteEnvironment(ctx context.Context, p auth.Principal, in *deleteInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteEnvironment(ctx, p, in.Tenant, in.Name, match)
}

func (a *api) suspendEnvironment(ctx context.Context, p auth.Principal, in *actInput[apiv1.Suspend]) (*tagged[apiv1.Environment], error) {
	return environmentAnswer(a.control.SuspendEnvironment(ctx, p, in.Tenant, in.Name, reason(in.Body)))
}

func (a *api) resumeEnvironment(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Environment], error) {
	return environmentAnswer(a.control.ResumeEnvironment(ctx, p, in.Tenant, in.Name))
}

func environmentAnswer(v control.EnvironmentView, err error) (*tagged[apiv1.Environment], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Environment]{ETag: etag(v.ID, v.SpecRevision), Body: environmentJSON(v)}, nil
}

func pushSpec(r *apiv1.PushRequest) *control.PushSpec {
	if r == nil {
		return nil
	}
	return &control.PushSpec{APIURL: r.APIURL, Kubeconfig: r.Kubeconfig, Context: r.Context, Namespaces: r.Namespaces, ClusterResources: r.ClusterResources}
}

func pushJSON(v control.EnvironmentView) *apiv1.Push {
	if v.Push == nil {
		return nil
	}
	return &apiv1.Push{
		APIURL: v.Push.APIURL, Namespaces: v.Push.Namespaces, ClusterResources: v.Push.ClusterResources, EngineInstance: v.Instance,
		Ready: conditionsJSON([]fleet.Condition{v.Ready})[0],
	}
}

func environmentJSON(v control.EnvironmentView) apiv1.Environment {
	return apiv1.Environment{
		ID: string(v.ID), Name: v.Name, Agents: v.Environment.Agents, MatchLabels: v.MatchLabels,
		Selected: v.Agents, Push: pushJSON(v), Deployments: v.Deployments,
		Suspension: suspensionJSON(v.Suspension), SpecRevision: v.SpecRevision, CreatedAt: utc(v.CreatedAt),
	}
}
