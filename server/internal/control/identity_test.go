package control_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestTokenIsAcceptedUntilItExpiresOrIsRevoked(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	token, secret, err := d.CreateAPIToken(d.ctx, root, "acme", control.CreateAPIToken{Name: "ci", Role: fleet.RoleDeployer, ExpiresIn: time.Hour})
	ok(t, err)
	p, err := d.Authenticate(d.ctx, secret)
	ok(t, err)
	if p.Name != "ci" || p.FleetAdmin || !p.MayDeploy(acme.ID) || p.MayAdmin(acme.ID) || p.TokenID != token.ID {
		t.Fatalf("got %+v", p)
	}
	if strings.Contains(string(token.Hash), secret) {
		t.Fatal("the token is kept in the clear")
	}
	d.clock.pass(time.Hour)
	if _, err := d.Authenticate(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Fatalf("an expired token: %v", err)
	}
	again, secret, err := d.CreateAPIToken(d.ctx, root, "acme", control.CreateAPIToken{Name: "ci", Role: fleet.RoleViewer})
	ok(t, err) // the name of an expired one is free
	ok(t, d.RevokeAPIToken(d.ctx, root, "acme", again.ID))
	if _, err := d.Authenticate(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Fatalf("a revoked token: %v", err)
	}
}

func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	for _, role := range []fleet.Role{fleet.RoleViewer, fleet.RoleDeployer} {
		_, _, err := d.CreateAPIToken(d.ctx, member(acme, role), "acme", control.CreateAPIToken{Name: "x", Role: fleet.RoleViewer})
		if !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("a %s makes tokens: %v", role, err)
		}
		err = d.PutMember(d.ctx, member(acme, role), "acme", fleet.Member{Kind: fleet.MemberPerson, Subject: "eve", Role: fleet.RoleViewer})
		if !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("a %s makes members: %v", role, err)
		}
	}
	boss := member(acme, fleet.RoleAdmin)
	if _, _, err := d.CreateAPIToken(d.ctx, boss, "", control.CreateAPIToken{Name: "x"}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("an admin of a tenant makes a token of the fleet: %v", err)
	}
	_, _, err := d.CreateAPIToken(d.ctx, boss, "acme", control.CreateAPIToken{Name: "x", Role: fleet.RoleFleetAdmin})
	wantInvalid(t, err, "role")
	err = d.PutMember(d.ctx, boss, "acme", fleet.Member{Kind: fleet.MemberPerson, Subject: "eve", Role: fleet.RoleFleetAdmin})
	wantInvalid(t, err, "role")
	if _, err := d.SuspendTenant(d.ctx, boss, "acme", ""); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("an admin of a tenant suspends it: %v", err)
	}
	if _, err := d.UpdateTenant(d.ctx, boss, "acme", control.UpdateTenant{Quota: &fleet.Quota{}}, control.Match{}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("an admin of a tenant raises its quota: %v", err)
	}
	if _, err := d.SuspendTenant(d.ctx, boss, "default", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another tenant does not exist for them: %v", err)
	}
}

func TestTakenTokenNameIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	req := control.CreateAPIToken{Name: "ci", Role: fleet.RoleViewer}
	_, _, err := d.CreateAPIToken(d.ctx, root, "acme", req)
	ok(t, err)
	if _, _, err := d.CreateAPIToken(d.ctx, root, "acme", req); !errors.Is(err, store.ErrExists) {
		t.Fatalf("got %v", err)
	}
}

func TestLastTokenOfTheFleetIsKept(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	tokens, err := d.APITokens(d.ctx, root, "", store.Page{})
	ok(t, err)
	if len(tokens) != 1 {
		t.Fatalf("a new database has %d tokens", len(tokens))
	}
	wantConflict(t, d.RevokeAPIToken(d.ctx, root, "", tokens[0].ID), "last token")
	brief, _, err := d.CreateAPIToken(d.ctx, root, "", control.CreateAPIToken{Name: "brief", ExpiresIn: time.Minute})
	ok(t, err)
	d.clock.pass(time.Hour)
	wantConflict(t, d.RevokeAPIToken(d.ctx, root, "", tokens[0].ID), "last token") // the other has expired
	ok(t, d.RevokeAPIToken(d.ctx, root, "", brief.ID))
	_, _, err = d.CreateAPIToken(d.ctx, root, "", control.CreateAPIToken{Name: "second"})
	ok(t, err)
	ok(t, d.RevokeAPIToken(d.ctx, root, "", tokens[0].ID))
}

func TestRolesOfASessionAreThoseOfNow(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme, other := d.tenant(t, "acme"), d.tenant(t, "other")
	secret, session, err := d.StartSession(d.ctx, control.Login{Issuer: "https://id.example.com", Subject: "1", Name: "alice", DisplayName: "Alice", Groups: []string{"ops", "dev", "ops"}, TTL: time.Hour})
	ok(t, err)
	if !session.ExpiresAt.Equal(d.clock.Now().Add(time.Hour)) {
		t.Errorf("expires %s", session.ExpiresAt)
	}
	now := func() auth.Principal {
		t.Helper()
		p, err := d.Authenticate(d.ctx, secret)
		ok(t, err)
		return p
	}
	if p := now(); p.MayRead(acme.ID) || p.MayRead(other.ID) || !p.Session || p.Name != "alice" {
		t.Fatalf("without memberships: %+v", p)
	}
	put := func(kind fleet.MemberKind, subject string, role fleet.Role) {
		t.Helper()
		ok(t, d.PutMember(d.ctx, root, "acme", fleet.Member{Kind: kind, Subject: subject, Role: role}))
	}
	put(fleet.MemberGroup, "dev", fleet.RoleDeployer)
	put(fleet.MemberPerson, "alice", fleet.RoleViewer)
	put(fleet.MemberPerson, "dev", fleet.RoleAdmin)  // a person who is called like the group
	put(fleet.MemberGroup, "alice", fleet.RoleAdmin) // a group that is called like the person
	if p := now(); !p.MayDeploy(acme.ID) || p.MayAdmin(acme.ID) || p.MayRead(other.ID) {
		t.Fatalf("the better of person and group: %+v", p)
	}
	ok(t, d.RemoveMember(d.ctx, root, "acme", fleet.MemberGroup, "dev"))
	if p := now(); p.MayDeploy(acme.ID) || !p.MayRead(acme.ID) {
		t.Fatalf("a membership that was taken away still counts: %+v", p)
	}
	ok(t, d.EndSession(d.ctx, now()))
	if _, err := d.Authenticate(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestSessionExpires(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	secret, _, err := d.StartSession(d.ctx, control.Login{Issuer: "https://id.example.com", Subject: "1", Name: "alice", FleetAdmin: true})
	ok(t, err)
	p, err := d.Authenticate(d.ctx, secret)
	ok(t, err)
	if !p.FleetAdmin {
		t.Fatalf("got %+v", p)
	}
	tokens, err := d.APITokens(d.ctx, root, "", store.Page{})
	ok(t, err)
	if len(tokens) != 1 {
		t.Errorf("sessions are listed among the tokens: %+v", tokens)
	}
	wantConflict(t, d.EndSession(d.ctx, root), "revoke it")
	d.clock.pass(12 * time.Hour)
	if _, err := d.Authenticate(d.ctx, secret); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Fatalf("after a day: %v", err)
	}
}

func TestTenantsAreListedToThoseWhoMayReadThem(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme, zeta := d.tenant(t, "acme"), d.tenant(t, "zeta")
	p := member(zeta, fleet.RoleViewer)
	p.Roles[acme.ID] = fleet.RoleAdmin
	p.Roles["ten-gone"] = fleet.RoleAdmin
	names := func(p auth.Principal, page store.Page) string {
		t.Helper()
		tenants, err := d.Tenants(d.ctx, p, page)
		ok(t, err)
		var out []string
		for _, tenant := range tenants {
			out = append(out, tenant.Name)
		}
		return strings.Join(out, " ")
	}
	for want, got := range map[string]string{
		"acme zeta":         names(p, store.Page{}),
		"zeta":              names(p, store.Page{After: "acme"}),
		"acme":              names(p, store.Page{Limit: 1}),
		"acme default zeta": names(root, store.Page{}),
		"":                  names(auth.Principal{Name: "nobody"}, store.Page{}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
