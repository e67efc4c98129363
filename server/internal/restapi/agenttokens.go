package restapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agentTokenControl interface {
	AgentTokens(ctx context.Context, p auth.Principal, tenant, agent string, page store.Page) ([]fleet.AgentToken, error)
	CreateAgentToken(ctx context.Context, p auth.Principal, tenant, agent, chosen string) (fleet.AgentToken, string, error)
	RevokeAgentToken(ctx context.Context, p auth.Principal, tenant, agent string, id fleet.TokenID) error
	RotateAgentToken(ctx context.Context, p auth.Principal, tenant, agent string) (fleet.Operation, error)
}

const agentTokensPath = tenant + "/agents/{name}/tokens"

var agentTokens = resource{"token of agent", tenant + "/agents"}

type agentTokenInput struct {
	Named
	Token string `path:"token" maxLength:"64" doc:"ID of the token."`
}

func (a *api) registerAgentTokens() {
	register(a, operation("list-agent-tokens", http.MethodGet, agentTokensPath,
		"List the tokens of an agent; at most two are valid at the same time", http.StatusOK), agents, a.listAgentTokens)
	register(a, operation("create-agent-token", http.MethodPost, agentTokensPath,
		"Create another token of an agent: it is returned only once", http.StatusCreated), agentTokens, a.createAgentToken)
	register(a, operation("revoke-agent-token", http.MethodDelete, agentTokensPath+"/{token}",
		"Revoke a token of an agent: connections that use it end within seconds, and applied objects stay", http.StatusNoContent), agents, a.revokeAgentToken)
	register(a, operation("rotate-agent-token", http.MethodPost, tenant+"/agents/{name}/rotate-token",
		"Give a connected agent a new token, and revoke the old one when it has connected with the new one", http.StatusAccepted), agents, a.rotateAgentToken)
}

func (a *api) listAgentTokens(ctx context.Context, p auth.Principal, in *namedListInput) (*listOutput[apiv1.AgentToken], error) {
	page, err := in.numbered()
	if err != nil {
		return nil, err
	}
	found, err := a.control.AgentTokens(ctx, p, in.Tenant, in.Name, page)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, agentTokenJSON, func(t fleet.AgentToken) string {
		return strconv.FormatInt(t.CreatedAt.UnixMicro(), 10) + "/" + string(t.ID)
	}), nil
}

func (a *api) createAgentToken(ctx context.Context, p auth.Principal, in *actInput[apiv1.CreateAgentToken]) (*created[apiv1.NewAgentToken], error) {
	chosen := ""
	if in.Body != nil {
		chosen = in.Body.Token
	}
	made, secret, err := a.control.CreateAgentToken(ctx, p, in.Tenant, in.Name, chosen)
	if err != nil {
		return nil, err
	}
	info := infoFrom(ctx)
	info.shownOnce = true
	return &created[apiv1.NewAgentToken]{
		Location: info.about.list + "/" + in.Name + "/tokens/" + string(made.ID),
		Body:     apiv1.NewAgentToken{AgentToken: agentTokenJSON(made), Token: secret},
	}, nil
}

func (a *api) revokeAgentToken(ctx context.Context, p auth.Principal, in *agentTokenInput) (*struct{}, error) {
	return nil, a.control.RevokeAgentToken(ctx, p, in.Tenant, in.Name, fleet.TokenID(in.Token))
}

func (a *api) rotateAgentToken(ctx context.Context, p auth.Principal, in *Named) (*accepted[apiv1.Operation], error) {
	done, err := a.control.RotateAgentToken(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return operationAccepted(in.Tenant, done), nil
}

func agentTokenJSON(t fleet.AgentToken) apiv1.AgentToken {
	return apiv1.AgentToken{
		ID: string(t.ID), Valid: t.Valid(), CreatedAt: utc(t.CreatedAt), CreatedBy: t.CreatedBy,
		LastUsedAt: utc(t.LastUsed), RevokedAt: utc(t.RevokedAt),
	}
}
