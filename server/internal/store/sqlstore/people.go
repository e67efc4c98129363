package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// people is outside the structure of tenants: the key of the row prevents that a name is bound twice.
type people struct{ tx *Tx }

func (s people) Bind(ctx context.Context, p fleet.Person) error {
	err := s.tx.aside().insert(ctx, `INSERT INTO people (name, issuer, subject, display_name, created_at, logged_in_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		p.Name, p.Issuer, p.Subject, p.DisplayName, micros(p.CreatedAt), micros(p.LoggedInAt))
	if err != nil {
		return fmt.Errorf("binding the name %q: %w", p.Name, err)
	}
	return nil
}

func (s people) LoggedIn(ctx context.Context, name, displayName string, at time.Time) error {
	n, err := s.tx.aside().exec(ctx, `UPDATE people SET display_name = $2, logged_in_at = $3 WHERE name = $1`, name, displayName, micros(at))
	return found(n, err, "noting a login of", name)
}

func (s people) Forget(ctx context.Context, name string) error {
	n, err := s.tx.aside().exec(ctx, `DELETE FROM people WHERE name = $1`, name)
	return found(n, err, "forgetting", name)
}

// found returns an error if a statement affected no row.
func found(n int64, err error, doing, name string) error {
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", doing, name, err)
	}
	return nil
}

const personColumns = `SELECT name, issuer, subject, display_name, created_at, logged_in_at,
	(SELECT COUNT(*) FROM api_tokens t WHERE t.subject = people.name AND t.subject <> '' AND t.revoked_at IS NULL AND t.expires_at > $1)
	FROM people `

func (s people) ByName(ctx context.Context, name string, now time.Time) (fleet.Person, error) {
	p, err := only(s.list(ctx, personColumns+`WHERE name = $2`, micros(now), name))
	if err != nil {
		return fleet.Person{}, fmt.Errorf("reading person %q: %w", name, err)
	}
	return p, nil
}

func (s people) List(ctx context.Context, now time.Time, page store.Page) ([]fleet.Person, error) {
	out, err := s.list(ctx, personColumns+`WHERE name > $2 ORDER BY name LIMIT $3`, micros(now), page.After, limitOf(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing people: %w", err)
	}
	return out, nil
}

func (s people) list(ctx context.Context, query string, args ...any) ([]fleet.Person, error) {
	var out []fleet.Person
	err := s.tx.aside().each(ctx, func(row Row) error {
		var p fleet.Person
		err := row.Scan(&p.Name, &p.Issuer, &p.Subject, &p.DisplayName, timeInto(&p.CreatedAt), timeInto(&p.LoggedInAt), &p.Sessions)
		out = append(out, p)
		return err
	}, query, args...)
	return out, err
}
