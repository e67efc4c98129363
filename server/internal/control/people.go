package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// bind binds a name to the person of its first login, and refuses everyone else: a name that the provider
// reuses must not inherit anything.
func (s *Service) bind(ctx context.Context, tx store.Tx, who auth.Principal, l Login) error {
	now := s.cfg.Now()
	me := fleet.Person{Name: l.Name, Issuer: l.Issuer, Subject: l.Subject, DisplayName: l.DisplayName, CreatedAt: now, LoggedInAt: now}
	known, err := tx.People().ByName(ctx, l.Name, now)
	if err == nil && known.Is(me) {
		err = tx.People().LoggedIn(ctx, me.Name, me.DisplayName, now) // not found if deleted concurrently
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := tx.People().Bind(ctx, me); err != nil {
			return err
		}
		return s.audit(ctx, tx, who, personEvent("person.bind", me, fmt.Sprintf("subject %s of %s", me.Subject, me.Issuer)))
	case err != nil:
		return err
	case !known.Is(me):
		return fleet.Invalid("name", "another person with the name %q has logged in before: if that person has left, a fleet admin can free the name with: kedge person forget %[2]s",
			l.Name, l.Name)
	}
	return nil
}

// People lists everyone who has logged in, by name, with the number of their open sessions.
func (s *Service) People(ctx context.Context, p auth.Principal, page store.Page) ([]fleet.Person, error) {
	if err := fleetAdmin(p); err != nil {
		return nil, err
	}
	var out []fleet.Person
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = tx.People().List(ctx, s.cfg.Now(), page)
		return err
	})
	return out, err
}

// Person returns one person. People may read themselves.
func (s *Service) Person(ctx context.Context, p auth.Principal, name string) (fleet.Person, error) {
	if err := oneself(p, name); err != nil {
		return fleet.Person{}, err
	}
	var out fleet.Person
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = tx.People().ByName(ctx, name, s.cfg.Now())
		return err
	})
	return out, err
}

// EndSessions ends all sessions of a person: requests are refused from now on, and streams end within seconds
// on every server. People may end their own. Without sessions it changes nothing.
func (s *Service) EndSessions(ctx context.Context, p auth.Principal, name string) error {
	if err := oneself(p, name); err != nil {
		return err
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		person, err := tx.People().ByName(ctx, name, s.cfg.Now())
		if err != nil {
			return err
		}
		return s.endSessions(ctx, tx, p, person)
	})
}

func (s *Service) endSessions(ctx context.Context, tx store.Tx, p auth.Principal, person fleet.Person) error {
	n, err := tx.Tokens().RevokeSessions(ctx, person.Name, s.cfg.Now())
	if err != nil || n == 0 {
		return err
	}
	return s.audit(ctx, tx, p, fleet.AuditEvent{Action: "session.end", Kind: "session", Name: person.Name, Detail: "all of them: " + wording.Count(n, "session")})
}

// ForgetPerson frees the name of a person who has left, for the next person with that name at the provider.
// Everything of the name is deleted: sessions, and the memberships and access rules in all tenants.
func (s *Service) ForgetPerson(ctx context.Context, p auth.Principal, name string) error {
	if err := fleetAdmin(p); err != nil {
		return err
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		person, err := tx.People().ByName(ctx, name, s.cfg.Now())
		if err != nil {
			return err
		}
		// First: a concurrent login either was before, and is visible here, or waits for the row and then finds
		// a free name.
		if err := tx.People().Forget(ctx, name); err != nil {
			return err
		}
		if err := s.endSessions(ctx, tx, p, person); err != nil {
			return err
		}
		memberships, err := tx.Members().OfAllTenants(ctx, name, nil)
		if err != nil {
			return err
		}
		for _, m := range memberships {
			if err := tx.Members().Remove(ctx, m.TenantID, m.Kind, m.Subject); err != nil {
				return err
			}
			if err := s.audit(ctx, tx, p, memberEvent("member.remove", m)); err != nil {
				return err
			}
		}
		if err := s.forgetAccess(ctx, tx, p, name); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, personEvent("person.forget", person, fmt.Sprintf("subject %s of %s", person.Subject, person.Issuer)))
	})
}

// oneself allows a fleet admin to act on anyone, and everyone on themselves.
func oneself(p auth.Principal, name string) error {
	if p.Session && p.Name == name {
		return nil
	}
	return fleetAdmin(p)
}

func personEvent(action string, p fleet.Person, detail string) fleet.AuditEvent {
	return fleet.AuditEvent{Action: action, Kind: "person", Name: p.Name, Detail: detail}
}
