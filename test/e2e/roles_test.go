package e2e_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// The roles, each including the permissions of the previous one.
const (
	anyRole = iota
	deployerRole
	adminRole
	fleetRole
)

// covers: T1, T3 (roles, and tenants that see nothing of each other)
func TestRolesBoundWhatATokenCanDo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		owner := s.tenantClient(t, "acme")
		stranger := s.tenantClient(t, "other").role(t, "admin")
		stranger.tenant = "acme"
		repo, commit := pushTo(t, "one")
		light(t, owner, "prod")
		owner.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
		owner.await(t, "web", healthyAt(commit, 1))
		people := []tenantClient{owner.role(t, "viewer"), owner.role(t, "deployer"), owner.role(t, "admin"), owner}
		source := apiv1.Source{RepoURL: repo.url}
		requests := []struct {
			least        int
			method, path string
			body         any
		}{
			{anyRole, "GET", "agents", nil},
			{anyRole, "GET", "deployments/web", nil},
			{anyRole, "GET", "deployments/web/revisions", nil},
			{anyRole, "GET", "events", nil},
			{anyRole, "GET", "/whoami", nil},
			{deployerRole, "POST", "deployments", apiv1.CreateDeployment{Name: "new", Source: source}},
			{deployerRole, "PATCH", "deployments/web", apiv1.UpdateDeployment{Labels: map[string]string{"a": "b"}}},
			{deployerRole, "POST", "deployments/web/suspend", apiv1.Suspend{}},
			{deployerRole, "POST", "deployments/web/resume", nil},
			{deployerRole, "POST", "deployments/web/runs", apiv1.CreateRun{}},
			{deployerRole, "DELETE", "deployments/new", nil},
			{adminRole, "POST", "agents", apiv1.EnrollAgent{Name: "new"}},
			{adminRole, "DELETE", "agents/new", nil},
			{adminRole, "POST", "environments", apiv1.CreateEnvironment{Name: "new", Agents: []string{"prod"}}},
			{adminRole, "POST", "environments/new/suspend", apiv1.Suspend{}},
			{adminRole, "DELETE", "environments/new", nil},
			{adminRole, "POST", "credentials", apiv1.CreateCredential{Name: "new", Kind: "https", Secret: "hunter2"}},
			{adminRole, "DELETE", "credentials/new", nil},
			{adminRole, "POST", "tokens", apiv1.CreateAPIToken{Name: "new", Role: "viewer"}},
			{adminRole, "PUT", "members/person/ann", apiv1.PutMember{Role: "viewer"}},
			{fleetRole, "POST", "/tenants", apiv1.CreateTenant{Name: "third"}},
			{fleetRole, "PATCH", "/tenants/acme", apiv1.UpdateTenant{Quota: &apiv1.Quota{}}},
			{fleetRole, "POST", "/fleet/freeze", apiv1.Suspend{}},
			{fleetRole, "POST", "/fleet/unfreeze", nil},
			{fleetRole, "POST", "/tokens", apiv1.CreateAPIToken{Name: "f", Role: "fleet-admin"}},
			{fleetRole, "GET", "/audit", nil},
		}
		for _, r := range requests {
			for role, who := range people {
				got := who.ask(t, r.method, r.path, r.body).Code
				switch may := role >= r.least; {
				case may && got >= 300 && got != 409: // a name may be in use by the previous one
					t.Errorf("role %d is refused %s %s with %d", role, r.method, r.path, got)
				case !may && got != 403 && got != 404:
					t.Errorf("role %d gets %d for %s %s", role, got, r.method, r.path)
				}
				if role >= r.least && r.method == "DELETE" {
					break // it is gone
				}
			}
			if strings.HasPrefix(r.path, "/") {
				continue
			}
			if got := stranger.ask(t, r.method, r.path, r.body); got.Code != 404 || strings.Contains(string(got.Body), commit) {
				t.Errorf("an admin of another tenant gets %d for %s %s: %s", got.Code, r.method, r.path, got.Body)
			}
		}
		if names := get[apiv1.List[apiv1.Tenant]](t, stranger, "/tenants").Items; len(names) != 1 || names[0].Name != "other" {
			t.Errorf("an admin of another tenant reads the tenants %+v", names)
		}
		// Callers cannot assign more than their own role.
		people[adminRole].want(t, 403, "POST", "/tokens", apiv1.CreateAPIToken{Name: "x", Role: "fleet-admin"})
		if a := people[adminRole].ask(t, "POST", "tokens", apiv1.CreateAPIToken{Name: "x", Role: "fleet-admin"}); a.Code < 400 {
			t.Errorf("an admin of a tenant makes a fleet admin: %d %s", a.Code, a.Body)
		}
		for token, why := range map[string]string{"": "no token", "kedge-api-wrong": "a wrong one"} {
			if a := (tenantClient{Server: owner.As(token), tenant: "acme"}).ask(t, "GET", "agents", nil); a.Code != 401 {
				t.Errorf("%s: %d %s", why, a.Code, a.Body)
			}
		}
	})
}

// covers: T1 (tokens end when they are revoked or expire)
func TestTokenThatIsRevokedOrExpiredIsWorthNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := s.tenantClient(t, "default")
	made := decode[apiv1.NewAPIToken](t, d.want(t, 201, "POST", "tokens", apiv1.CreateAPIToken{Name: "ci", Role: "viewer", ExpiresIn: "1h"}))
	user := tenantClient{Server: d.As(made.Token), tenant: "default"}
	user.want(t, 200, "GET", "agents", nil)
	if made.ExpiresAt.IsZero() || strings.Contains(string(d.want(t, 200, "GET", "tokens", nil).Body), made.Token) {
		t.Errorf("the token %+v does not expire, or is listed with its secret", made.APIToken)
	}
	d.want(t, 204, "DELETE", "tokens/"+made.ID, nil)
	user.want(t, 401, "GET", "agents", nil)
	brief := decode[apiv1.NewAPIToken](t, d.want(t, 201, "POST", "tokens", apiv1.CreateAPIToken{Name: "brief", Role: "viewer", ExpiresIn: "1s"}))
	awaitCode(t, tenantClient{Server: d.As(brief.Token), tenant: "default"}, 401, "agents")
}

// covers: T3
func TestQuotasHold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, _ := pushTo(t, "one")
		source := apiv1.Source{RepoURL: repo.url}
		env := func(name string) apiv1.CreateEnvironment {
			return apiv1.CreateEnvironment{Name: name, MatchLabels: map[string]string{"a": "b"}}
		}
		cases := []struct {
			what        string
			quota       apiv1.Quota
			path        string
			first, more any
		}{
			{"agents", apiv1.Quota{Agents: 1}, "agents", apiv1.EnrollAgent{Name: "a"}, apiv1.EnrollAgent{Name: "b"}},
			{"environments", apiv1.Quota{Environments: 2}, "environments", env("a"), env("b")},
			{"deployments", apiv1.Quota{Deployments: 1}, "deployments", apiv1.CreateDeployment{Name: "a", Source: source}, apiv1.CreateDeployment{Name: "b", Source: source}},
			{"repositories", apiv1.Quota{Repositories: 1}, "repositories", nil, apiv1.CreateRepository{URL: "https://git.example.com/b"}},
			{"repositories", apiv1.Quota{Repositories: 1}, "deployments", nil, apiv1.CreateDeployment{Name: "c", Source: apiv1.Source{RepoURL: "https://git.example.com/c"}}},
			{"targets", apiv1.Quota{Targets: 1}, "deployments", nil, apiv1.CreateDeployment{Name: "d", Source: source}},
			{"targets", apiv1.Quota{Targets: 1}, "agents", nil, apiv1.EnrollAgent{Name: "e"}},
			{"tokens", apiv1.Quota{Tokens: 1}, "tokens", apiv1.CreateAPIToken{Name: "a", Role: "viewer"}, apiv1.CreateAPIToken{Name: "b", Role: "viewer"}},
		}
		for _, c := range cases {
			d.want(t, 200, "PATCH", "/tenants/acme", apiv1.UpdateTenant{Quota: &c.quota})
			if c.first != nil {
				d.want(t, 201, "POST", c.path, c.first)
			}
			refused := d.want(t, 403, "POST", c.path, c.more)
			if !strings.Contains(string(refused.Body), c.what) {
				t.Errorf("beyond the quota of %s the answer is %s", c.what, refused.Body)
			}
			d.want(t, 200, "PATCH", "/tenants/acme", apiv1.UpdateTenant{Quota: &apiv1.Quota{}})
		}
		// Others are not bounded by it.
		s.tenantClient(t, "free").want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "b"})
	})
}

// covers: T1 (audit), O4
func TestAuditSaysWhoDidWhat(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := s.tenantClient(t, "acme")
	deployer := d.role(t, "deployer")
	repo, _ := pushTo(t, "one")
	d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "git", Kind: "https", Secret: "hunter2"})
	deployer.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	deployer.want(t, 403, "POST", "agents", apiv1.EnrollAgent{Name: "x"}) // nothing was done
	deployer.want(t, 202, "DELETE", "deployments/web", nil)
	seq := func(v apiv1.AuditEvent) string { return v.At.String() + v.Action }
	var actions []string
	for _, e := range all(t, d, "audit", "1", seq) {
		actions = append(actions, e.Action)
		if e.Component == "" || e.Request == "" || e.Address == "" || e.Actor == "" {
			t.Errorf("the audit event %+v does not say who, where and when", e)
		}
	}
	if got, want := strings.Join(actions, " "), "deployment.delete deployment.create credential.create token.create tenant.create"; !strings.HasPrefix(got+" ", want+" ") {
		t.Errorf("the audit log reads %q, want %q", got, want)
	}
	whole := string(d.want(t, 200, "GET", "audit", nil).Body)
	if strings.Contains(whole, "hunter2") || strings.Contains(whole, deployer.Token) || strings.Contains(whole, `"x"`) {
		t.Errorf("a secret, or what was not done, is in the audit log: %s", whole)
	}
	mine := get[apiv1.List[apiv1.AuditEvent]](t, d, "audit?actor=deployer&action=deployment.create").Items
	if len(mine) != 1 || mine[0].Name != "web" {
		t.Errorf("what the deployer created is %+v", mine)
	}
	out, err := s.kedge(t, "audit", "--tenant", "acme", "--actor", "deployer")
	if err != nil || !strings.Contains(out, "deployment.delete") || strings.Contains(out, "credential.create") {
		t.Errorf("kedge audit: %v\n%s", err, out)
	}
}
