package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// sessionTTL is how long a session lives when the login does not say: a working day.
	sessionTTL = 12 * time.Hour
	// maxGroups bounds the groups that are kept of a person.
	maxGroups = 1000
)

// StartSession lets a person in whom an identity provider has vouched for, and returns the secret of
// the session this once. What they may do is looked up at every call, from the memberships of the
// person and of the groups that the provider gave now.
func (s *Service) StartSession(ctx context.Context, l Login) (string, fleet.APIToken, error) {
	if err := checkLogin(l); err != nil {
		return "", fleet.APIToken{}, err
	}
	secret, now := auth.NewToken(auth.SessionPrefix), s.cfg.Now()
	session := fleet.APIToken{
		ID: fleet.NewTokenID(), Name: cmp.Or(l.Name, l.Subject), Subject: l.Subject, FleetAdmin: l.FleetAdmin,
		Groups: slices.Compact(slices.Sorted(slices.Values(l.Groups))), Hash: auth.Hash(secret),
		CreatedAt: now, CreatedBy: l.Subject, ExpiresAt: now.Add(l.ttl()),
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Tokens().CreateAPIToken(ctx, session); err != nil {
			return err
		}
		who := auth.Principal{Name: l.Subject, Door: "rest", Request: l.Request, Address: l.Address}
		return s.audit(ctx, tx, who, sessionEvent("session.start", session))
	})
	if err != nil {
		return "", fleet.APIToken{}, err
	}
	return secret, session, nil
}

func (l Login) ttl() time.Duration {
	if l.TTL <= 0 {
		return sessionTTL
	}
	return l.TTL
}

func checkLogin(l Login) error {
	if l.Subject == "" || len(l.Subject) > maxSubject {
		return fleet.Invalid("subject", "the name of a person has between 1 and %d characters", maxSubject)
	}
	if len(l.Groups) > maxGroups {
		return fleet.Invalid("groups", "a person with more than %d groups cannot log in: let the identity provider send fewer", maxGroups)
	}
	return nil
}

// EndSession logs the person out whose session p is. A token is revoked, not logged out.
func (s *Service) EndSession(ctx context.Context, p auth.Principal) error {
	if !p.Session {
		return conflict("%s is a token, not a session: revoke it instead", p.Name)
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
