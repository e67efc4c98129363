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
	CreateEnvironment(ctx context.Context, p auth.Principal, tenant string, req control.CreateEnvironment) (fleet.Environment, error)
	Environments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Environment, error)
}

const environmentsPath = tenant + "/environments"

type (
	createEnvironmentInput struct {
		Tenant string `path:"tenant"`
		Body   apiv1.CreateEnvironment
	}
	environmentOutput struct{ Body apiv1.Environment }
)

func (a *api) registerEnvironments() {
	list := operation("list-environments", http.MethodGet, environmentsPath, "List environments by name", http.StatusOK)
	register(a, list, func(in *listInput) subject { return about("environment", environmentsPath, in.Tenant, "") }, a.listEnvironments)

	create := operation("create-environment", http.MethodPost, environmentsPath, "Create an environment", http.StatusCreated, http.StatusConflict)
	register(a, create, func(in *createEnvironmentInput) subject {
		return about("environment", environmentsPath, in.Tenant, in.Body.Name)
	}, a.createEnvironment)
}

func (a *api) listEnvironments(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Environment], error) {
	found, err := a.control.Environments(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, environmentJSON, func(e fleet.Environment) string { return e.Name }), nil
}

func (a *api) createEnvironment(ctx context.Context, p auth.Principal, in *createEnvironmentInput) (*environmentOutput, error) {
	made, err := a.control.CreateEnvironment(ctx, p, in.Tenant, control.CreateEnvironment{
		Name: in.Body.Name, Agents: in.Body.Agents, MatchLabels: in.Body.MatchLabels,
	})
	if err != nil {
		return nil, err
	}
	return &environmentOutput{environmentJSON(made)}, nil
}

func environmentJSON(e fleet.Environment) apiv1.Environment {
	return apiv1.Environment{
		ID: string(e.ID), Name: e.Name, Agents: e.Agents, MatchLabels: e.MatchLabels, CreatedAt: utc(e.CreatedAt),
	}
}
