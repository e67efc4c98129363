package storetest

import (
	"context"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func newPerson(name, subject string) fleet.Person {
	return fleet.Person{Name: name, Issuer: "https://id.example.com", Subject: subject, CreatedAt: at(1), LoggedInAt: at(1)}
}

var peopleTests = map[string]func(*testing.T, store.Store){
	"have a unique name":             peopleNames,
	"are listed with their sessions": peopleList,
}

func peopleNames(t *testing.T, s store.Store) {
	ada := newPerson("ada", "1")
	bind := func(p fleet.Person) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error { return tx.People().Bind(ctx, p) }
	}
	get := func(ctx context.Context, tx store.Tx) (fleet.Person, error) {
		return tx.People().ByName(ctx, "ada", at(2))
	}
	missing(t, s, get)
	before := last(t, s)
	update(t, s, bind(ada))
	update(t, s, bind(newPerson("ada.l", "1"))) // the same person with another name
	for _, again := range []fleet.Person{ada, newPerson("ada", "2")} {
		refuse(t, s, store.ErrExists, bind(again))
	}
	ada.DisplayName, ada.LoggedInAt = "Ada L.", at(30)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.People().LoggedIn(ctx, "ada", "Ada L.", at(30))
	})
	same(t, "after a login", read(t, s, get), ada)
	forget := func(ctx context.Context, tx store.Tx) error { return tx.People().Forget(ctx, "ada") }
	update(t, s, forget)
	refuse(t, s, store.ErrNotFound, forget)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.People().LoggedIn(ctx, "ada", "", at(31)) })
	update(t, s, bind(newPerson("ada", "2")))
	same(t, "changes", since(t, s, before), nil)
}

func peopleList(t *testing.T, s store.Store) {
	ada, bob := newPerson("ada", "1"), newPerson("bob", "2")
	open, over, ended := newSession("ada"), newSession("ada"), newSession("ada")
	over.ExpiresAt, ended.RevokedAt = at(20), at(10)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, p := range []fleet.Person{bob, ada} {
			if err := tx.People().Bind(ctx, p); err != nil {
				return err
			}
		}
		for _, token := range []fleet.APIToken{open, over, ended, newAPIToken("", "ada")} {
			if err := tx.Tokens().CreateAPIToken(ctx, token); err != nil {
				return err
			}
		}
		return nil
	})
	list := func(page store.Page) []fleet.Person {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Person, error) {
			return tx.People().List(ctx, at(21), page)
		})
	}
	ada.Sessions = 1
	same(t, "all", list(store.Page{}), []fleet.Person{ada, bob})
	same(t, "the first", list(store.Page{Limit: 1}), []fleet.Person{ada})
	same(t, "the rest", list(store.Page{After: "ada"}), []fleet.Person{bob})
}
