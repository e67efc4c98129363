package restapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// apiTokenControl uses "" as the tenant for tokens of the whole fleet.
type apiTokenControl interface {
	APITokens(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.APIToken, error)
	CreateAPIToken(ctx context.Context, p auth.Principal, tenant string, req control.CreateAPIToken) (fleet.APIToken, string, error)
	RevokeAPIToken(ctx context.Context, p auth.Principal, tenant string, id fleet.TokenID) error
}

var (
	apiTokens   = resource{"token", tenant + "/tokens"}
	fleetTokens = resource{"token", base + "/tokens"}
)

type (
	tokenInput struct {
		InTenant
		Token string `path:"token" maxLength:"64" doc:"ID of the token."`
	}
	fleetTokenInput struct {
		Token string `path:"token" maxLength:"64" doc:"ID of the token."`
	}
	createFleetTokenInput struct{ Body apiv1.CreateAPIToken }
)

func (in *tokenInput) at() (string, string)      { return in.Tenant, in.Token }
func (in *fleetTokenInput) at() (string, string) { return "", in.Token }

func (a *api) registerAPITokens() {
	const shown = ": it is returned only once"
	register(a, operation("list-tokens", http.MethodGet, apiTokens.path, "List the API tokens of a tenant by name", http.StatusOK), apiTokens, a.listTokens)
	register(a, operation("create-token", http.MethodPost, apiTokens.path, "Create an API token for a tenant"+shown, http.StatusCreated), apiTokens, a.createToken)
	register(a, operation("revoke-token", http.MethodDelete, apiTokens.path+"/{token}",
		"Revoke an API token of a tenant", http.StatusNoContent), apiTokens, a.revokeToken)

	register(a, operation("list-fleet-tokens", http.MethodGet, fleetTokens.path, "List the API tokens of the fleet by name", http.StatusOK), fleetTokens, a.listFleetTokens)
	register(a, operation("create-fleet-token", http.MethodPost, fleetTokens.path, "Create an API token for the fleet"+shown, http.StatusCreated), fleetTokens, a.createFleetToken)
	register(a, operation("revoke-fleet-token", http.MethodDelete, fleetTokens.path+"/{token}",
		"Revoke an API token of the fleet", http.StatusNoContent), fleetTokens, a.revokeFleetToken)
}

func (a *api) listTokens(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.APIToken], error) {
	return a.tokensOf(ctx, p, in.Tenant, in.Paging)
}

func (a *api) listFleetTokens(ctx context.Context, p auth.Principal, in *Paging) (*listOutput[apiv1.APIToken], error) {
	return a.tokensOf(ctx, p, "", *in)
}

func (a *api) tokensOf(ctx context.Context, p auth.Principal, tenantName string, in Paging) (*listOutput[apiv1.APIToken], error) {
	found, err := a.control.APITokens(ctx, p, tenantName, in.page())
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, a.tokenJSON, func(t fleet.APIToken) string { return t.Name + "/" + string(t.ID) }), nil
}

func (a *api) createToken(ctx context.Context, p auth.Principal, in *createInput[apiv1.CreateAPIToken]) (*created[apiv1.NewAPIToken], error) {
	return a.newToken(ctx, p, in.Tenant, in.Body)
}

func (a *api) createFleetToken(ctx context.Context, p auth.Principal, in *createFleetTokenInput) (*created[apiv1.NewAPIToken], error) {
	return a.newToken(ctx, p, "", in.Body)
}

func (a *api) newToken(ctx context.Context, p auth.Principal, tenantName string, body apiv1.CreateAPIToken) (*created[apiv1.NewAPIToken], error) {
	naming(ctx, body.Name)
	lasts, err := lifetime("expiresIn", body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	made, secret, err := a.control.CreateAPIToken(ctx, p, tenantName, control.CreateAPIToken{
		Name: body.Name, Role: fleet.Role(body.Role), ExpiresIn: lasts,
	})
	if err != nil {
		return nil, err
	}
	info := infoFrom(ctx)
	info.shownOnce = true
	return &created[apiv1.NewAPIToken]{
		Location: info.about.list + "/" + string(made.ID),
		Body:     apiv1.NewAPIToken{APIToken: a.tokenJSON(made), Token: secret},
	}, nil
}

func (a *api) revokeToken(ctx context.Context, p auth.Principal, in *tokenInput) (*struct{}, error) {
	return nil, a.control.RevokeAPIToken(ctx, p, in.Tenant, fleet.TokenID(in.Token))
}

func (a *api) revokeFleetToken(ctx context.Context, p auth.Principal, in *fleetTokenInput) (*struct{}, error) {
	return nil, a.control.RevokeAPIToken(ctx, p, "", fleet.TokenID(in.Token))
}

func (a *api) tokenJSON(t fleet.APIToken) apiv1.APIToken {
	return apiv1.APIToken{
		ID: string(t.ID), Name: t.Name, Role: string(t.Role), Valid: t.ValidAt(a.cfg.Now()),
		CreatedAt: utc(t.CreatedAt), CreatedBy: t.CreatedBy, ExpiresAt: utc(t.ExpiresAt), RevokedAt: utc(t.RevokedAt),
	}
}

// lifetime parses a duration of at least a second, also in days; "" is 0.
func lifetime(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if days, inDays := strings.CutSuffix(text, "d"); inDays {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
		if n > 36500 { // longer would overflow a duration
			d = 0
		}
	}
	if err != nil || d < time.Second {
		return 0, fleet.Invalid(field, "%q must be a duration of at least one second, such as 12h or 90d", text)
	}
	return d, nil
}
