package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type deploymentControl interface {
	CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error)
	Deployments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]control.DeploymentView, error)
	Deployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error)
	DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string) error
}

const deploymentsPath = tenant + "/deployments"

type (
	createDeploymentInput struct {
		Tenant string `path:"tenant"`
		Body   apiv1.CreateDeployment
	}
	deploymentOutput struct{ Body apiv1.Deployment }
)

func (a *api) registerDeployments() {
	list := operation("list-deployments", http.MethodGet, deploymentsPath, "List deployments by name, without their objects", http.StatusOK)
	register(a, list, func(in *listInput) subject { return about("deployment", deploymentsPath, in.Tenant, "") }, a.listDeployments)

	create := operation("create-deployment", http.MethodPost, deploymentsPath, "Create a deployment", http.StatusCreated, http.StatusConflict)
	register(a, create, func(in *createDeploymentInput) subject {
		return about("deployment", deploymentsPath, in.Tenant, in.Body.Name)
	}, a.createDeployment)

	named := func(in *namedInput) subject { return about("deployment", deploymentsPath, in.Tenant, in.Name) }
	get := operation("get-deployment", http.MethodGet, deploymentsPath+"/{name}", "Read a deployment with every object on every target", http.StatusOK)
	register(a, get, named, a.getDeployment)

	remove := operation("delete-deployment", http.MethodDelete, deploymentsPath+"/{name}",
		"Delete a deployment: its objects are deleted in every cluster, and it is gone when they are", http.StatusAccepted)
	register(a, remove, named, a.deleteDeployment)
}

func (a *api) listDeployments(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Deployment], error) {
	views, err := a.control.Deployments(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	convert := func(v control.DeploymentView) apiv1.Deployment { return deploymentJSON(v, false) }
	return paged(views, in.Limit, convert, nextDeployment), nil
}

func (a *api) createDeployment(ctx context.Context, p auth.Principal, in *createDeploymentInput) (*deploymentOutput, error) {
	b := in.Body
	view, err := a.control.CreateDeployment(ctx, p, in.Tenant, control.CreateDeployment{
		Name:        b.Name,
		Source:      fleet.Source{RepoURL: b.Source.RepoURL, Path: b.Source.Path, Revision: b.Source.Revision, Globs: b.Source.Globs},
		Environment: b.Environment, Namespace: b.Namespace,
		Prune: b.Policy.Prune, Adopt: b.Policy.Adopt, AllowEmpty: b.Policy.AllowEmpty,
	})
	if err != nil {
		return nil, err
	}
	return &deploymentOutput{deploymentJSON(view, true)}, nil
}

func (a *api) getDeployment(ctx context.Context, p auth.Principal, in *namedInput) (*deploymentOutput, error) {
	view, err := a.control.Deployment(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &deploymentOutput{deploymentJSON(view, true)}, nil
}

func (a *api) deleteDeployment(ctx context.Context, p auth.Principal, in *namedInput) (*struct{}, error) {
	return nil, a.control.DeleteDeployment(ctx, p, in.Tenant, in.Name)
}

func deploymentJSON(v control.DeploymentView, objects bool) apiv1.Deployment {
	out := apiv1.Deployment{
		ID: string(v.ID), Name: v.Name,
		Source:      apiv1.Source{RepoURL: v.Source.RepoURL, Path: v.Source.Path, Revision: v.Source.Revision, Globs: v.Source.Globs},
		Environment: v.Environment, Namespace: v.Namespace,
		Policy: apiv1.Policy{Prune: v.Policy.Prune, Adopt: v.Policy.Adopt, AllowEmpty: v.Policy.AllowEmpty},
		Commit: v.Rendered.Commit, Digest: v.Rendered.Digest, RenderedAt: utc(v.Rendered.At), SourceError: v.SourceError,
		CreatedAt: utc(v.CreatedAt), DeletedAt: utc(v.DeletedAt),
		Sync: string(v.Sync), Health: string(v.Health), Message: v.Message,
		Targets: make([]apiv1.Target, 0, len(v.Targets)),
	}
	for _, t := range v.Targets {
		out.Targets = append(out.Targets, targetJSON(t, objects))
	}
	return out
}

func targetJSON(t control.TargetView, objects bool) apiv1.Target {
	out := apiv1.Target{
		ID: string(t.ID), Agent: t.AgentName,
		Sync: string(t.View.Sync), Health: string(t.View.Health), Message: t.View.Message,
		AsOf: utc(t.View.AsOf), StaleSince: utc(t.View.StaleSince),
		Generation: t.Desired.Generation, ObservedGeneration: t.Observed.Generation, Commit: t.Desired.Commit,
	}
	if !objects {
		return out
	}
	for _, o := range t.Objects {
		out.Objects = append(out.Objects, apiv1.Object{
			Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
			Sync: string(o.Sync), Health: string(o.Health), Message: o.Message,
		})
	}
	return out
}

// utc makes times read the same wherever the server runs; zero stays zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// nextDeployment is where the page after v begins. Names alone would not do: a deployment and those
// before it that are on their way out share one.
func nextDeployment(v control.DeploymentView) string { return v.Name + "/" + string(v.ID) }
