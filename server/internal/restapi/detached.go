package restapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type detachedControl interface {
	DetachedTargets(ctx context.Context, p auth.Principal, tenant string, f store.DetachedFilter) ([]fleet.Target, error)
	DismissTargets(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (control.Dismissed, error)
}

const detachedPath = tenant + "/detached-targets"

type (
	listDetachedInput struct {
		InTenant
		Paging
		Deployment string `query:"deployment" maxLength:"253" doc:"Only targets of this deployment."`
		Agent      string `query:"agent" maxLength:"253" doc:"Only targets of the agent with this name, which may be deleted."`
	}
	dismissTargetsInput struct {
		InTenant
		Body apiv1.DismissTargets
	}
)

func (a *api) registerDetached() {
	register(a, operation("list-detached-targets", http.MethodGet, detachedPath,
		"List the detached targets of all deployments by deployment name", http.StatusOK), targets, a.listDetached)
	register(a, operation("dismiss-targets", http.MethodPost, detachedPath+"/dismiss",
		"Dismiss all detached targets of a deployment, of an agent, or of both: their objects stay", http.StatusOK), targets, a.dismissTargets)
}

func (a *api) listDetached(ctx context.Context, p auth.Principal, in *listDetachedInput) (*listOutput[apiv1.DetachedTarget], error) {
	found, err := a.control.DetachedTargets(ctx, p, in.Tenant, store.DetachedFilter{Page: in.page(), Deployment: in.Deployment, Agent: in.Agent})
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, detachedJSON, func(t fleet.Target) string { return t.DeploymentName + "/" + string(t.ID) }), nil
}

func (a *api) dismissTargets(ctx context.Context, p auth.Principal, in *dismissTargetsInput) (*plain[apiv1.DismissedTargets], error) {
	naming(ctx, cmp.Or(in.Body.Agent, in.Body.Deployment))
	done, err := a.control.DismissTargets(ctx, p, in.Tenant, in.Body.Deployment, in.Body.Agent)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.DismissedTargets]{apiv1.DismissedTargets{Dismissed: len(done.Targets), Kept: done.Kept}}, nil
}

func detachedJSON(t fleet.Target) apiv1.DetachedTarget {
	return apiv1.DetachedTarget{
		Target: string(t.ID), Deployment: t.DeploymentName, Agent: t.AgentName, DetachedAt: utc(t.DetachedAt), Reason: t.DetachedWhy,
		Managed: t.AgentID != "" && !(control.AgentTarget{Target: t}).Released(),
	}
}
