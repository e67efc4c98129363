package control_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// login starts a session of a person with the given subject.
func (d *fixture) login(t *testing.T, name, sub string) (string, auth.Principal) {
	t.Helper()
	secret, _, err := d.StartSession(d.ctx, control.Login{Issuer: "https://id.example.com", Subject: sub, Name: name})
	ok(t, err)
	p, err := d.Authenticate(d.ctx, secret)
	ok(t, err)
	return secret, p
}

func (d *fixture) wantOut(t *testing.T, secret, reason string) {
	t.Helper()
	if _, err := d.Authenticate(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("%s: %v", reason, err)
	}
}

func TestSessionsOfAPersonAreEndedByThoseWhoMay(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	first, alice := d.login(t, "alice", "1")
	second, _ := d.login(t, "alice", "1")
	other, bob := d.login(t, "bob", "2")
	for reason, p := range map[string]auth.Principal{
		"another person": bob, "an admin of a tenant": member(acme, fleet.RoleAdmin),
		"a token that is called like the person": {Name: "alice", Roles: map[fleet.TenantID]fleet.Role{acme.ID: fleet.RoleAdmin}},
	} {
		if err := d.EndSessions(d.ctx, p, "alice"); !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%s ends sessions: %v", reason, err)
		}
		if _, err := d.People(d.ctx, p, store.Page{}); !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%s lists people: %v", reason, err)
		}
		if err := d.ForgetPerson(d.ctx, p, "alice"); !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%s forgets people: %v", reason, err)
		}
	}
	people, err := d.People(d.ctx, root, store.Page{})
	ok(t, err)
	if len(people) != 2 || people[0].Name != "alice" || people[0].Sessions != 2 || people[1].Sessions != 1 {
		t.Fatalf("got %+v", people)
	}
	ok(t, d.EndSessions(d.ctx, root, "alice"))
	ok(t, d.EndSessions(d.ctx, root, "alice"))
	d.wantOut(t, first, "the first session")
	d.wantOut(t, second, "the second session")
	if _, err := d.Authenticate(d.ctx, other); err != nil {
		t.Errorf("the session of another person: %v", err)
	}
	log, err := d.Audit(d.ctx, root, "", store.AuditFilter{Action: "session.end"})
	ok(t, err)
	if len(log) != 1 || log[0].Name != "alice" || log[0].Actor != root.Name || !strings.Contains(log[0].Detail, "2 sessions") {
		t.Errorf("the log says %+v", log)
	}
	third, alice := d.login(t, alice.Name, "1")
	ok(t, d.EndSessions(d.ctx, alice, "alice"))
	d.wantOut(t, third, "her own doing")
	if err := d.EndSessions(d.ctx, root, "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown person: %v", err)
	}
}

// A name is bound to its first person, whatever names the provider gives to others later.
func TestNameBelongsToWhoeverCameFirst(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	ok(t, d.PutMember(d.ctx, root, "acme", fleet.Member{Kind: fleet.MemberPerson, Subject: "alice", Role: fleet.RoleAdmin}))
	secret, alice := d.login(t, "alice", "1")
	if !alice.MayAdmin(acme.ID) {
		t.Fatalf("got %+v", alice)
	}
	for reason, l := range map[string]control.Login{
		"another subject":  {Issuer: "https://id.example.com", Subject: "2", Name: "alice"},
		"another provider": {Issuer: "https://other.example.com", Subject: "1", Name: "alice"},
	} {
		_, _, err := d.StartSession(d.ctx, l)
		wantInvalid(t, err, "name")
		if t.Failed() {
			t.Fatal(reason)
		}
	}
	ok(t, d.ForgetPerson(d.ctx, root, "alice"))
	d.wantOut(t, secret, "a session of a deleted person")
	if _, p := d.login(t, "alice", "2"); p.MayRead(acme.ID) {
		t.Errorf("the next Alice inherits %+v", p)
	}
	log, err := d.Audit(d.ctx, root, "acme", store.AuditFilter{Action: "member.remove"})
	ok(t, err)
	if len(log) != 1 || log[0].Name != "person alice" {
		t.Errorf("the log of the tenant says %+v", log)
	}
}
