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
	// sessionTTL is how long a session lives when the login does not say: a working day.
	sessionTTL = 12 * time.Hour
	// maxGroups bounds the groups that are kept of a person.
	maxGroups = 1000
	// maxIdentity bounds what a provider calls itself, and a person.
	maxIdentity = 2048
)

// StartSession lets a person in whom an identity provider has vouched for, and returns the secret of
// the session this once. The first login by a name binds it to the person; who comes by the name of
// another is refused. What they may do is looked up at every call, from the memberships of the person
// and of the groups that the provider gave now.
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
	who := auth.Principal{Name: l.Name, Door: "rest", Request: l.Request, Address: l.Address}
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
		return fleet.Invalid("name", "%q is the server itself: the audit log could not tell the two apart", l.Name)
	case l.Issuer == "" || l.Subject == "" || len(l.Issuer) > maxIdentity || len(l.Subject) > maxIdentity:
		return fleet.Invalid("subject", "a person is known by what the identity provider calls itself and the person, each of between 1 and %d characters", maxIdentity)
	case len(l.Groups) > maxGroups:
		return fleet.Invalid("groups", "a person with more than %d groups cannot log in: let the identity provider send fewer", maxGroups)
	}
	return nil
}

// unprintable is true of what cannot be seen, or looks like something else: a name must not pass for
// another one.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// EndSession logs the person out whose session p is. A token is revoked, not logged out.
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
