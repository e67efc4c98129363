package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type personControl interface {
	People(ctx context.Context, p auth.Principal, page store.Page) ([]fleet.Person, error)
	Person(ctx context.Context, p auth.Principal, name string) (fleet.Person, error)
	EndSessions(ctx context.Context, p auth.Principal, name string) error
	ForgetPerson(ctx context.Context, p auth.Principal, name string) error
}

var people = resource{"person", base + "/people"}

type personInput struct {
	Name string `path:"name" maxLength:"256" doc:"Name of the person in memberships."`
}

func (in *personInput) at() (string, string) { return "", in.Name }

func (a *api) registerPeople() {
	one := people.path + "/{name}"
	register(a, operation("list-people", http.MethodGet, people.path, "List people who have logged in, by name", http.StatusOK), people, a.listPeople)
	register(a, operation("get-person", http.MethodGet, one, "Read a person", http.StatusOK), people, a.getPerson)
	register(a, operation("end-sessions", http.MethodDelete, one+"/sessions",
		"End all sessions of a person; streams end within seconds", http.StatusNoContent), people, a.endSessions)
	register(a, operation("forget-person", http.MethodDelete, one,
		"Delete a person: ends the sessions, removes the memberships, and frees the name", http.StatusNoContent), people, a.forgetPerson)
}

func (a *api) listPeople(ctx context.Context, p auth.Principal, in *Paging) (*listOutput[apiv1.Person], error) {
	// Names may contain a slash, which separates the two parts of other cursors.
	found, err := a.control.People(ctx, p, store.Page{After: in.After, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, personJSON, func(p fleet.Person) string { return p.Name }), nil
}

func (a *api) getPerson(ctx context.Context, p auth.Principal, in *personInput) (*plain[apiv1.Person], error) {
	found, err := a.control.Person(ctx, p, in.Name)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Person]{personJSON(found)}, nil
}

func (a *api) endSessions(ctx context.Context, p auth.Principal, in *personInput) (*struct{}, error) {
	return nil, a.control.EndSessions(ctx, p, in.Name)
}

func (a *api) forgetPerson(ctx context.Context, p auth.Principal, in *personInput) (*struct{}, error) {
	return nil, a.control.ForgetPerson(ctx, p, in.Name)
}

func personJSON(p fleet.Person) apiv1.Person {
	return apiv1.Person{
		Name: p.Name, DisplayName: p.DisplayName, Issuer: p.Issuer, Subject: p.Subject, Sessions: p.Sessions,
		CreatedAt: utc(p.CreatedAt), LoggedInAt: utc(p.LoggedInAt),
	}
}
