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

type tenantControl interface {
	Tenants(ctx context.Context, p auth.Principal, page store.Page) ([]fleet.Tenant, error)
	Tenant(ctx context.Context, p auth.Principal, name string) (fleet.Tenant, error)
	CreateTenant(ctx context.Context, p auth.Principal, req control.CreateTenant) (fleet.Tenant, error)
	UpdateTenant(ctx context.Context, p auth.Principal, name string, req control.UpdateTenant, match control.Match) (fleet.Tenant, error)
	DeleteTenant(ctx context.Context, p auth.Principal, name string, match control.Match) error
	SuspendTenant(ctx context.Context, p auth.Principal, name, reason string) (fleet.Tenant, error)
	ResumeTenant(ctx context.Context, p auth.Principal, name string) (fleet.Tenant, error)
}

var tenants = resource{"tenant", base + "/tenants"}

type (
	// WholeTenant is the input of requests about a tenant itself.
	WholeTenant struct {
		Tenant string `path:"tenant" maxLength:"253"`
	}
	createTenantInput struct{ Body apiv1.CreateTenant }
	updateTenantInput struct {
		WholeTenant
		Matching
		Body apiv1.UpdateTenant
	}
	deleteTenantInput struct {
		WholeTenant
		Matching
	}
	suspendTenantInput struct {
		WholeTenant
		Body *apiv1.Suspend
	}
)

func (in *WholeTenant) at() (string, string) { return "", in.Tenant }

func (a *api) registerTenants() {
	register(a, operation("list-tenants", http.MethodGet, tenants.path,
		"List the tenants that the caller may read, by name", http.StatusOK), tenants, a.listTenants)
	register(a, operation("create-tenant", http.MethodPost, tenants.path,
		"Create a tenant, with an environment 'default'", http.StatusCreated), tenants, a.createTenant)
	register(a, operation("get-tenant", http.MethodGet, tenant, "Read a tenant", http.StatusOK), tenants, a.getTenant)
	register(a, operation("update-tenant", http.MethodPatch, tenant, "Change the quota of a tenant", http.StatusOK), tenants, a.updateTenant)
	register(a, operation("delete-tenant", http.MethodDelete, tenant,
		"Delete a tenant without resources", http.StatusNoContent), tenants, a.deleteTenant)
	register(a, operation("suspend-tenant", http.MethodPost, tenant+"/suspend",
		"Suspend a tenant: none of its targets gets a new state", http.StatusOK), tenants, a.suspendTenant)
	register(a, operation("resume-tenant", http.MethodPost, tenant+"/resume",
		"Resume a tenant", http.StatusOK), tenants, a.resumeTenant)
}

func (a *api) listTenants(ctx context.Context, p auth.Principal, in *Paging) (*listOutput[apiv1.Tenant], error) {
	found, err := a.control.Tenants(ctx, p, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, tenantJSON, func(t fleet.Tenant) string { return t.Name }), nil
}

func (a *api) createTenant(ctx context.Context, p auth.Principal, in *createTenantInput) (*created[apiv1.Tenant], error) {
	naming(ctx, in.Body.Name)
	made, err := a.control.CreateTenant(ctx, p, control.CreateTenant{Name: in.Body.Name, Quota: fleet.Quota(in.Body.Quota)})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Tenant]{Location: tenants.path + "/" + made.Name, ETag: stateTag(control.TenantState(made)), Body: tenantJSON(made)}, nil
}

func (a *api) getTenant(ctx context.Context, p auth.Principal, in *WholeTenant) (*tagged[apiv1.Tenant], error) {
	return tenantAnswer(a.control.Tenant(ctx, p, in.Tenant))
}

func (a *api) updateTenant(ctx context.Context, p auth.Principal, in *updateTenantInput) (*tagged[apiv1.Tenant], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	req := control.UpdateTenant{}
	if in.Body.Quota != nil {
		req.Quota = new(fleet.Quota(*in.Body.Quota))
	}
	return tenantAnswer(a.control.UpdateTenant(ctx, p, in.Tenant, req, match))
}

func (a *api) deleteTenant(ctx context.Context, p auth.Principal, in *deleteTenantInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteTenant(ctx, p, in.Tenant, match)
}

func (a *api) suspendTenant(ctx context.Context, p auth.Principal, in *suspendTenantInput) (*tagged[apiv1.Tenant], error) {
	return tenantAnswer(a.control.SuspendTenant(ctx, p, in.Tenant, reason(in.Body)))
}

func (a *api) resumeTenant(ctx context.Context, p auth.Principal, in *WholeTenant) (*tagged[apiv1.Tenant], error) {
	return tenantAnswer(a.control.ResumeTenant(ctx, p, in.Tenant))
}

func tenantAnswer(t fleet.Tenant, err error) (*tagged[apiv1.Tenant], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Tenant]{ETag: stateTag(control.TenantState(t)), Body: tenantJSON(t)}, nil
}

func tenantJSON(t fleet.Tenant) apiv1.Tenant {
	return apiv1.Tenant{
		ID: string(t.ID), Name: t.Name, Quota: apiv1.Quota(t.Quota), Suspension: suspensionJSON(t.Suspension), CreatedAt: utc(t.CreatedAt),
	}
}

// reason returns the reason that a person entered, if any.
func reason(s *apiv1.Suspend) string {
	if s == nil {
		return ""
	}
	return s.Reason
}

func suspensionJSON(s fleet.Suspension) *apiv1.Suspension {
	if !s.Active() {
		return nil
	}
	return &apiv1.Suspension{At: utc(s.At), By: s.By, Reason: s.Reason}
}
