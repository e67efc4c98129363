package login_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/oidcserver"
)

// user returns a person by subject and name.
func user(sub, name string) oidcserver.User {
	return oidcserver.User{Subject: sub, Email: name + "@example.com", EmailVerified: true, PreferredUsername: name}
}

// If the provider gives a name to another person later, that person does not get the roles of the first one.
func TestNameOfAnotherPersonIsRejected(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	member := fleet.Member{Kind: fleet.MemberPerson, Subject: "jane@example.com", Role: fleet.RoleAdmin}
	if err := w.control.PutMember(t.Context(), admin, fleet.DefaultTenant, member); err != nil {
		t.Fatal(err)
	}
	log := func(sub, name string) (page, string) {
		browser := newBrowser(t)
		w.provider.QueueUser(user(sub, name))
		got := w.visit(t, browser, "GET", loginPath, "")
		_, role, _ := w.whoami(t, browser)
		return got, role
	}
	for range 2 {
		if got, role := log("1", "jane"); role != "admin" {
			t.Fatalf("Jane is %q: %d %s", role, got.status, got.body)
		}
	}
	got, role := log("2", "jane")
	if got.status != 403 || role != "" || !strings.Contains(got.body, "another person") {
		t.Errorf("another Jane is %q: %d %s", role, got.status, got.body)
	}
	if _, role := log("1", "jane.doe"); role != "" {
		t.Errorf("Jane with a name without a role is %q", role)
	}
	if err := w.control.ForgetPerson(t.Context(), admin, "jane@example.com"); err != nil {
		t.Fatal(err)
	}
	if got, role := log("2", "jane"); got.status != 200 || role != "" {
		t.Errorf("another Jane, after the name was released, is %q: %d %s", role, got.status, got.body)
	}
}
