package auth_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

func TestRolesIncludeLowerRoles(t *testing.T) {
	t.Parallel()
	in := func(role fleet.Role) auth.Principal {
		return auth.Principal{Roles: map[fleet.TenantID]fleet.Role{"ten-a": role}}
	}
	cases := map[string]struct {
		reason              string
		p                   auth.Principal
		tenant              fleet.TenantID
		read, deploy, admin bool
	}{
		"Nobody":     {"no role, no access", auth.Principal{}, "ten-a", false, false, false},
		"Viewer":     {"reads", in(fleet.RoleViewer), "ten-a", true, false, false},
		"Deployer":   {"deploys", in(fleet.RoleDeployer), "ten-a", true, true, false},
		"Admin":      {"has full access to the tenant", in(fleet.RoleAdmin), "ten-a", true, true, true},
		"Elsewhere":  {"has no access to another tenant", in(fleet.RoleAdmin), "ten-b", false, false, false},
		"Unknown":    {"an unknown role gives no access", in("owner"), "ten-a", false, false, false},
		"NoTenant":   {"the fleet is not a tenant", in(fleet.RoleAdmin), "", false, false, false},
		"FleetAdmin": {"has access to all tenants", auth.Principal{FleetAdmin: true}, "ten-b", true, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, deploy, admin := tc.p.MayRead(tc.tenant), tc.p.MayDeploy(tc.tenant), tc.p.MayAdmin(tc.tenant)
			if read != tc.read || deploy != tc.deploy || admin != tc.admin {
				t.Errorf("%s: read %v, deploy %v, admin %v", tc.reason, read, deploy, admin)
			}
		})
	}
}

func TestBetterRole(t *testing.T) {
	t.Parallel()
	if got := auth.Better("", fleet.RoleViewer); got != fleet.RoleViewer {
		t.Errorf("nothing and viewer: %q", got)
	}
	if got := auth.Better(fleet.RoleAdmin, fleet.RoleDeployer); got != fleet.RoleAdmin {
		t.Errorf("admin and deployer: %q", got)
	}
	if auth.KnownRole(fleet.RoleFleetAdmin) || auth.KnownRole("") || !auth.KnownRole(fleet.RoleDeployer) {
		t.Error("want viewer, deployer and admin to be the roles of a tenant")
	}
}
