package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type uninstallControl interface {
	AgentObjects(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentObjects, error)
	DeleteAgentObjects(ctx context.Context, p auth.Principal, tenant, name string, objects int) (control.AgentObjects, error)
}

type deleteObjectsInput struct {
	Named
	Body apiv1.DeleteAgentObjects
}

func (a *api) registerUninstall() {
	path := agents.path + "/{name}/objects"
	register(a, operation("count-agent-objects", http.MethodGet, path,
		"Count the objects that an agent manages for its tenant; during their deletion, the remaining ones", http.StatusOK), agents, a.countObjects)
	register(a, operation("delete-agent-objects", http.MethodPost, path+"/delete",
		"Delete all objects that an agent manages for its tenant, before you uninstall it; protected kinds are kept", http.StatusOK), agents, a.deleteObjects)
}

func (a *api) countObjects(ctx context.Context, p auth.Principal, in *Named) (*plain[apiv1.AgentObjects], error) {
	return agentObjectsAnswer(a.control.AgentObjects(ctx, p, in.Tenant, in.Name))
}

func (a *api) deleteObjects(ctx context.Context, p auth.Principal, in *deleteObjectsInput) (*plain[apiv1.AgentObjects], error) {
	return agentObjectsAnswer(a.control.DeleteAgentObjects(ctx, p, in.Tenant, in.Name, in.Body.Objects))
}

func agentObjectsAnswer(found control.AgentObjects, err error) (*plain[apiv1.AgentObjects], error) {
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.AgentObjects]{apiv1.AgentObjects{
		Deployments: append([]string{}, found.Deployments...), Objects: found.Objects, OtherTenants: found.Others,
		Connected: found.Connected, Uninstalling: found.Uninstalling,
	}}, nil
}
