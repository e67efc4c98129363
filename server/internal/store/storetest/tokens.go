package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var tokenTests = map[string]func(*testing.T, store.Store){
	"of agents are found by hash and revoked once": agentTokens,
	"of the API are found by hash and counted":     apiTokens,
}

func agentTokens(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	second := newToken(w.agent)
	second.CreatedAt = at(20)
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tokens().CreateAgentToken(ctx, second) })
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		third := newToken(w.agent)
		third.Hash = second.Hash
		return tx.Tokens().CreateAgentToken(ctx, third)
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Tokens().RevokeAgentToken(ctx, w.tenant.ID, fleet.NewTokenID(), at(30))
	})
	for _, n := range []int{30, 40} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Tokens().RevokeAgentToken(ctx, w.tenant.ID, w.token.ID, at(n))
		})
	}
	revoked := w.token
	revoked.RevokedAt = at(30)
	same(t, "tokens", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.AgentToken, error) {
		return tx.Tokens().AgentTokens(ctx, w.tenant.ID, w.agent.ID)
	}), []fleet.AgentToken{revoked, second})
	same(t, "by hash", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentToken, error) {
		return tx.Tokens().AgentTokenByHashAllTenants(ctx, w.token.Hash)
	}), revoked)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentToken, error) {
		return tx.Tokens().AgentTokenByHashAllTenants(ctx, hashOf("nobody's"))
	})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeToken, ID: string(second.ID), AgentID: w.agent.ID},
		{TenantID: w.tenant.ID, Kind: store.ChangeToken, ID: string(w.token.ID), AgentID: w.agent.ID},
	})
}

func apiTokens(t *testing.T, s store.Store) {
	count := func() int {
		return read(t, s, func(ctx context.Context, tx store.Tx) (int, error) { return tx.Tokens().CountAPITokens(ctx) })
	}
	same(t, "count", count(), 0)
	id := fleet.NewTokenID()
	token := fleet.APIToken{ID: id, Name: "admin", Role: fleet.RoleFleetAdmin, Hash: hashOf(id), CreatedAt: at(1)}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tokens().CreateAPIToken(ctx, token) })
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error { return tx.Tokens().CreateAPIToken(ctx, token) })
	same(t, "count", count(), 1)
	same(t, "by hash", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APITokenByHash(ctx, token.Hash)
	}), token)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APITokenByHash(ctx, hashOf("nobody's"))
	})
}
