package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type grantControl interface {
	Grants(ctx context.Context, p auth.Principal, tenant string) (given, received []fleet.Grant, err error)
	CreateGrant(ctx context.Context, p auth.Principal, tenant string, req control.CreateGrant) (fleet.Grant, error)
	UpdateGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, limits fleet.Limits) (fleet.Grant, error)
	DeleteGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID) error
}

const (
	directionGiven    = "given"
	directionReceived = "received"
)

var grants = resource{"grant", tenant + "/grants"}

type (
	// OneGrant is what every request about one grant takes.
	OneGrant struct {
		InTenant
		Grant string `path:"grant" maxLength:"64" doc:"ID of the grant."`
	}
	updateGrantInput struct {
		OneGrant
		Body apiv1.UpdateGrant
	}
)

func (in *OneGrant) at() (string, string) { return in.Tenant, in.Grant }

func (a *api) registerGrants() {
	one := grants.path + "/{grant}"
	register(a, operation("list-grants", http.MethodGet, grants.path,
		"List the grants that a tenant has given, then those that it was given", http.StatusOK), grants, a.listGrants)
	register(a, operation("create-grant", http.MethodPost, grants.path,
		"Let another tenant deploy to an environment, within limits", http.StatusCreated), grants, a.createGrant)
	register(a, operation("update-grant", http.MethodPut, one, "Replace the limits of a grant", http.StatusOK), grants, a.updateGrant)
	register(a, operation("delete-grant", http.MethodDelete, one,
		"Take a grant back: what was deployed by it is let go, and its objects stay", http.StatusNoContent), grants, a.deleteGrant)
}

func (a *api) listGrants(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Grant], error) {
	given, received, err := a.control.Grants(ctx, p, in.Tenant)
	if err != nil {
		return nil, err
	}
	all := make([]apiv1.Grant, 0, len(given)+len(received))
	for _, g := range given {
		all = append(all, grantJSON(g, directionGiven))
	}
	for _, g := range received {
		all = append(all, grantJSON(g, directionReceived))
	}
	same := func(g apiv1.Grant) apiv1.Grant { return g }
	return cut(in.Paging, all, same, func(g apiv1.Grant) string {
		return g.Direction + "/" + g.Environment + "/" + g.Grantee + "/" + g.ID
	}), nil
}

func (a *api) createGrant(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateGrant]) (*created[apiv1.Grant], error) {
	naming(ctx, in.Body.Environment+"/"+in.Body.Grantee)
	made, err := a.control.CreateGrant(ctx, p, in.Tenant, control.CreateGrant{
		Environment: in.Body.Environment, Grantee: in.Body.Grantee, Limits: fleet.Limits(in.Body.Limits),
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Grant]{Location: infoFrom(ctx).about.list + "/" + string(made.ID), Body: grantJSON(made, directionGiven)}, nil
}

func (a *api) updateGrant(ctx context.Context, p auth.Principal, in *updateGrantInput) (*plain[apiv1.Grant], error) {
	changed, err := a.control.UpdateGrant(ctx, p, in.Tenant, fleet.GrantID(in.Grant), fleet.Limits(in.Body.Limits))
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Grant]{grantJSON(changed, directionGiven)}, nil
}

func (a *api) deleteGrant(ctx context.Context, p auth.Principal, in *OneGrant) (*struct{}, error) {
	return nil, a.control.DeleteGrant(ctx, p, in.Tenant, fleet.GrantID(in.Grant))
}

func grantJSON(g fleet.Grant, direction string) apiv1.Grant {
	return apiv1.Grant{
		ID: string(g.ID), Environment: g.Environment, Grantee: g.GranteeName, Direction: direction,
		Limits: apiv1.Limits(g.Limits), CreatedAt: utc(g.CreatedAt),
	}
}
