package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var tokenTests = map[string]func(*testing.T, store.Store){
	"of agents are found by hash and revoked once":       agentTokens,
	"of agents remember their last use":                  agentTokenUse,
	"of the API are found by hash and revoked":           apiTokens,
	"of the API are a tenant's or the fleet's":           apiTokenOwners,
	"of sessions store groups and are revoked by person": sessions,
	"of the API are trimmed when they are over":          apiTokensTrim,
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
		return tx.Tokens().AgentTokens(ctx, w.tenant.ID, w.agent.ID, store.Page{})
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

func agentTokenUse(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	before := last(t, s)
	for _, n := range []int{30, 50, 40} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Tokens().TouchAgentToken(ctx, w.tenant.ID, w.token.ID, at(n))
		})
	}
	want := w.token
	want.LastUsed = at(50)
	same(t, "tokens", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.AgentToken, error) {
		return tx.Tokens().AgentTokens(ctx, w.tenant.ID, w.agent.ID, store.Page{})
	}), []fleet.AgentToken{want})
	same(t, "changes", since(t, s, before), nil)
}

func getAPIToken(t *testing.T, s store.Store, token fleet.APIToken) fleet.APIToken {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APITokenByHash(ctx, token.Hash)
	})
}

func apiTokens(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	token := newAPIToken(w.tenant.ID, "ci") // a name may occur twice
	before := last(t, s)
	create := func(ctx context.Context, tx store.Tx) error { return tx.Tokens().CreateAPIToken(ctx, token) }
	update(t, s, create)
	refuse(t, s, store.ErrExists, create)
	same(t, "by hash", getAPIToken(t, s, token), token)
	same(t, "by id", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APIToken(ctx, w.tenant.ID, token.ID)
	}), token)
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APITokenByHash(ctx, hashOf("nobody's"))
	})
	for _, n := range []int{30, 40} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Tokens().RevokeAPIToken(ctx, w.tenant.ID, token.ID, at(n))
		})
	}
	token.RevokedAt = at(30)
	same(t, "after it was revoked", getAPIToken(t, s, token), token)
	record := store.Change{TenantID: w.tenant.ID, Kind: store.ChangeToken, ID: string(token.ID)}
	same(t, "changes", since(t, s, before), []store.Change{record, record})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Tokens().RevokeAPIToken(ctx, w.tenant.ID, fleet.NewTokenID(), at(30))
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Tokens().CreateAPIToken(ctx, newAPIToken("ten-nowhere", "x"))
	})
}

func apiTokenOwners(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	admin, second, revoked := newAPIToken("", "admin"), newAPIToken(w.tenant.ID, "bot"), newAPIToken(w.tenant.ID, "old")
	admin.Role, admin.ExpiresAt, revoked.RevokedAt = fleet.RoleFleetAdmin, time.Time{}, at(9)
	session := newSession("ada")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, token := range []fleet.APIToken{admin, second, revoked, session} {
			if err := tx.Tokens().CreateAPIToken(ctx, token); err != nil {
				return err
			}
		}
		return nil
	})
	cases := []struct {
		reason string
		tenant fleet.TenantID
		want   []fleet.APIToken
		count  int
	}{
		{"of the tenant", w.tenant.ID, []fleet.APIToken{second, w.apiToken, revoked}, 2},
		{"of the fleet", "", []fleet.APIToken{admin}, 1},
		{"of another tenant", w.guest.ID, nil, 0},
	}
	for _, c := range cases {
		same(t, c.reason, read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.APIToken, error) {
			return tx.Tokens().APITokens(ctx, c.tenant, store.Page{})
		}), c.want)
		same(t, c.reason+": count", read(t, s, func(ctx context.Context, tx store.Tx) (int, error) {
			return tx.Tokens().CountAPITokens(ctx, c.tenant)
		}), c.count)
	}
	for _, token := range []fleet.APIToken{admin, session} {
		same(t, "of the fleet by id", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
			return tx.Tokens().APIToken(ctx, "", token.ID)
		}), token)
		missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
			return tx.Tokens().APIToken(ctx, w.tenant.ID, token.ID)
		})
	}
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.APIToken, error) {
		return tx.Tokens().APIToken(ctx, "", w.apiToken.ID)
	})
}

func newSession(subject string) fleet.APIToken {
	token := newAPIToken("", subject+"'s session")
	token.Role, token.Subject, token.Groups, token.FleetAdmin = "", subject, []string{"ops", "web"}, true
	return token
}

func sessions(t *testing.T, s store.Store) {
	ada, second, bob := newSession("ada"), newSession("ada"), newSession("bob")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, token := range []fleet.APIToken{ada, second, bob} {
			if err := tx.Tokens().CreateAPIToken(ctx, token); err != nil {
				return err
			}
		}
		return nil
	})
	same(t, "with groups", getAPIToken(t, s, ada), ada)
	before := last(t, s)
	for _, want := range []int{2, 0} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.Tokens().RevokeSessions(ctx, "ada", at(40))
			same(t, "sessions that ended", n, want)
			return err
		})
	}
	ada.RevokedAt = at(40)
	same(t, "one that ended", getAPIToken(t, s, ada), ada)
	same(t, "somebody else's", getAPIToken(t, s, bob), bob)
	same(t, "changes", len(since(t, s, before)), 2)
}

func apiTokensTrim(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	forever, expired, revoked := newAPIToken("", "forever"), newSession("ada"), newAPIToken(w.tenant.ID, "revoked")
	forever.ExpiresAt, expired.ExpiresAt, revoked.RevokedAt = time.Time{}, at(20), at(30)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, token := range []fleet.APIToken{forever, expired, revoked} {
			if err := tx.Tokens().CreateAPIToken(ctx, token); err != nil {
				return err
			}
		}
		return nil
	})
	for _, step := range []struct{ before, want int }{{20, 0}, {21, 1}, {31, 1}, {4000, 0}} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			n, err := tx.Tokens().TrimAPITokens(ctx, at(step.before))
			same(t, "trimmed", n, step.want)
			return err
		})
	}
	same(t, "one that lasts", getAPIToken(t, s, forever), forever)
	same(t, "one that is not over", getAPIToken(t, s, w.apiToken), w.apiToken)
}
