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

type grantControl interface {
	Grants(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]control.GrantView, error)
	Grant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID) (control.GrantView, error)
	CreateGrant(ctx context.Context, p auth.Principal, tenant string, req control.CreateGrant) (fleet.Grant, error)
	UpdateGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, terms control.UpdateGrant, match control.Match) (fleet.Grant, error)
	DeleteGrant(ctx context.Context, p auth.Principal, tenant string, id fleet.GrantID, match control.Match) error
}

var grants = resource{"grant", tenant + "/grants"}

type (
	// OneGrant is the input of requests about one grant.
	OneGrant struct {
		InTenant
		Grant string `path:"grant" maxLength:"64" doc:"ID of the grant."`
	}
	updateGrantInput struct {
		OneGrant
		Matching
		Body apiv1.UpdateGrant
	}
	deleteGrantInput struct {
		OneGrant
		Matching
	}
)

func (in *OneGrant) at() (string, string) { return in.Tenant, in.Grant }

func (a *api) registerGrants() {
	one := grants.path + "/{grant}"
	register(a, operation("list-grants", http.MethodGet, grants.path,
		"List the grants that a tenant has given, then those that it has received", http.StatusOK), grants, a.listGrants)
	register(a, operation("create-grant", http.MethodPost, grants.path,
		"Grant an environment to another tenant, within limits", http.StatusCreated), grants, a.createGrant)
	register(a, operation("get-grant", http.MethodGet, one, "Read a grant that a tenant has given or received", http.StatusOK), grants, a.getGrant)
	register(a, operation("update-grant", http.MethodPut, one, "Replace the limits and the service account of a grant", http.StatusOK), grants, a.updateGrant)
	register(a, operation("delete-grant", http.MethodDelete, one,
		"Delete a grant: its targets are detached, and their objects stay", http.StatusNoContent), grants, a.deleteGrant)
}

func (a *api) listGrants(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Grant], error) {
	page := in.page()
	if page.After != "" && page.After != control.GrantsGiven && page.After != control.GrantsReceived {
		return nil, notACursor()
	}
	found, err := a.control.Grants(ctx, p, in.Tenant, page)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, grantJSON, nextGrant), nil
}

func (a *api) createGrant(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateGrant]) (*created[apiv1.Grant], error) {
	naming(ctx, in.Body.Environment+"/"+in.Body.Grantee)
	made, err := a.control.CreateGrant(ctx, p, in.Tenant, control.CreateGrant{
		Environment: in.Body.Environment, Grantee: in.Body.Grantee, Limits: fleet.Limits(in.Body.Limits), ServiceAccount: in.Body.ServiceAccount,
	})
	if err != nil {
		return nil, err
	}
	return &created[apiv1.Grant]{
		Location: infoFrom(ctx).about.list + "/" + string(made.ID), ETag: stateTag(control.GrantState(made)), Body: grantJSON(control.GrantView{Grant: made}),
	}, nil
}

func (a *api) getGrant(ctx context.Context, p auth.Principal, in *OneGrant) (*tagged[apiv1.Grant], error) {
	found, err := a.control.Grant(ctx, p, in.Tenant, fleet.GrantID(in.Grant))
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Grant]{ETag: stateTag(control.GrantState(found.Grant)), Body: grantJSON(found)}, nil
}

func (a *api) updateGrant(ctx context.Context, p auth.Principal, in *updateGrantInput) (*tagged[apiv1.Grant], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	changed, err := a.control.UpdateGrant(ctx, p, in.Tenant, fleet.GrantID(in.Grant), control.UpdateGrant{
		Limits: fleet.Limits(in.Body.Limits), ServiceAccount: in.Body.ServiceAccount,
	}, match)
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Grant]{ETag: stateTag(control.GrantState(changed)), Body: grantJSON(control.GrantView{Grant: changed})}, nil
}

func (a *api) deleteGrant(ctx context.Context, p auth.Principal, in *deleteGrantInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteGrant(ctx, p, in.Tenant, fleet.GrantID(in.Grant), match)
}

// nextGrant returns the start of the page after g.
func nextGrant(g control.GrantView) string {
	if g.Received {
		return control.GrantsReceived + "/" + g.Environment + "/" + g.OwnerName
	}
	return control.GrantsGiven + "/" + g.Environment + "/" + g.GranteeName
}

// grantJSON shows the environment of a received grant with the name that deployments use.
func grantJSON(g control.GrantView) apiv1.Grant {
	out := apiv1.Grant{
		ID: string(g.ID), Environment: g.Environment, Owner: g.OwnerName, Grantee: g.GranteeName, Direction: control.GrantsGiven,
		Limits: apiv1.Limits(g.Limits), ServiceAccount: g.ServiceAccount, CreatedAt: utc(g.CreatedAt),
	}
	if g.Received {
		out.Environment, out.Direction = g.OwnerName+"/"+g.Environment, control.GrantsReceived
	}
	return out
}
