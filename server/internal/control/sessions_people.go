package control

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// sessionTTL is the default lifetime of a session: a working day.
	sessionTTL = 12 * time.Hour
	// maxGroups limits the stored groups of a person.
	maxGroups = 1000
	// maxIdentity limits issuer and subject of a person.
	maxIdentity = 2048
)

// StartSession starts the session of a person whom an identity provider has authenticated, and returns its
// secret only once. The first login with a name binds it to the person; others with that name are refused.
// Permissions are looked up at every call, from the memberships of the person and of the groups at login.
func (s *Service) StartSession(ctx context.Context, l Login) (string, fleet.APIToken, error) {
	if err := checkLogin(l); err != nil {
		return "", fleet.APIToken{}, err
	}
	secret, now := auth.NewToken(auth.SessionPrefix), s.cfg.Now()
	session := fleet.APIToken{
		ID: fleet.NewTokenID(), Name: l.Name, Subject: l.Name, FleetAdmin: l.FleetAdmin,
		Groups: slices.Compact(slices.Sorted(slices.Values(l.Groups))), Hash: auth.Hash(secret),
		CreatedAt: now, CreatedBy: l.Name, ExpiresAt: now.Add(l.ttl()),
	}
	who := auth.Principal{Name: l.Name, Component: "rest", Request: l.Request, Address: l.Address}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := s.bind(ctx, tx, who, l); err != nil {
			return err
		}
		if err := tx.Tokens().CreateAPIToken(ctx, session); err != nil {
			return err
		}
		return s.audit(ctx, tx, who, sessionEvent("session.start", session))
	})
	if err != nil {
		return "", fleet.APIToken{}, err
	}
	return secret, session, nil
}

func (l Login) ttl() time.Duration {
	return cmp.Or(max(l.TTL, 0), sessionTTL)
}

func checkLogin(l Login) error {
	switch {
	case l.Name == "" || len(l.Name) > maxSubject || strings.ContainsFunc(l.Name, unprintable):
		return fleet.Invalid("name", "the name of a person has between 1 and %d characters that can be printed", maxSubject)
	case l.Name == auth.System().Name:
		return fleet.Invalid("name", "%q is reserved for the server itself", l.Name)
	case l.Issuer == "" || l.Subject == "" || len(l.Issuer) > maxIdentity || len(l.Subject) > maxIdentity:
		return fleet.Invalid("subject", "issuer and subject of a person have between 1 and %d characters", maxIdentity)
	case len(l.Groups) > maxGroups:
		return fleet.Invalid("groups", "a person with more than %d groups cannot log in: configure the identity provider to send fewer", maxGroups)
	}
	return nil
}

// unprintable reports characters that are invisible or look like others: a name must not look like another one.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// EndSession ends the session of p. A token is revoked, not logged out.
func (s *Service) EndSession(ctx context.Context, p auth.Principal) error {
	if !p.Session {
		return fleet.Conflict("%s is a token, not a session: revoke it instead", p.Name)
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		session, err := tx.Tokens().APIToken(ctx, "", p.TokenID)
		if err != nil || !session.RevokedAt.IsZero() {
			return err
		}
		if err := tx.Tokens().RevokeAPIToken(ctx, "", p.TokenID, s.cfg.Now()); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, sessionEvent("session.end", session))
	})
}

func sessionEvent(action string, t fleet.APIToken) fleet.AuditEvent {
	return fleet.AuditEvent{Action: action, Kind: "session", Name: t.Subject, ID: string(t.ID)}
}
