package control_test

import (
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestTenantStartsWithAnEnvironmentOfEverything(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	d.enroll(t, "acme", "paris", nil)
	env, err := d.Environment(d.ctx, root, "acme", "default")
	ok(t, err)
	if len(env.Agents) != 1 || env.Agents[0] != "paris" {
		t.Fatalf("got %+v", env)
	}
	if _, err := d.CreateTenant(d.ctx, root, control.CreateTenant{Name: "acme"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a taken name: %v", err)
	}
	_, err = d.CreateTenant(d.ctx, root, control.CreateTenant{Name: "Acme!"})
	wantInvalid(t, err, "name")
	_, err = d.CreateTenant(d.ctx, root, control.CreateTenant{Name: "x", Quota: fleet.Quota{Agents: -1}})
	wantInvalid(t, err, "quota.agents")
	if _, err := d.CreateTenant(d.ctx, auth.Principal{Name: "nobody"}, control.CreateTenant{Name: "acme"}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("the existence of a tenant is not revealed: %v", err)
	}
}

// covers: T5
func TestTenantIsDeletedOnlyWhenEmptyAndItsNameIsFreeThen(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "host")
	for range 3 {
		d.tenant(t, "acme")
		d.enroll(t, "acme", "paris", nil)
		wantConflict(t, d.DeleteTenant(d.ctx, root, "acme", control.Match{}), "1 agent")
		ok(t, d.DeleteAgent(d.ctx, root, "acme", "paris", control.Match{}))
		_, err := d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "acme"})
		ok(t, err)
		_, _, err = d.CreateAPIToken(d.ctx, root, "acme", control.CreateAPIToken{Name: "ci", Role: fleet.RoleViewer})
		ok(t, err)
		ok(t, d.DeleteTenant(d.ctx, root, "acme", control.Match{}))
		if _, err := d.Tenant(d.ctx, root, "acme"); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("got %v", err)
		}
	}
	log, err := d.Audit(d.ctx, root, "", store.AuditFilter{Action: "tenant.delete"})
	ok(t, err)
	if len(log) != 3 {
		t.Errorf("the fleet remembers %d of 3 deletions", len(log))
	}
}

func TestTenantWithDeploymentsOnTheirWayOutIsNotEmpty(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	d.enroll(t, "acme", "paris", nil)
	d.deploy(t, "acme", "web", "")
	d.render(t, "acme", "web", "1")
	_, err := d.DeleteDeployment(d.ctx, root, "acme", "web", control.Match{})
	ok(t, err)
	wantConflict(t, d.DeleteTenant(d.ctx, root, "acme", control.Match{}), "deployments")
}

// covers: T3
func TestQuotasAreEnforced(t *testing.T) {
	t.Parallel()
	add := map[string]func(d *fixture, name string) error{
		"agents": func(d *fixture, name string) error {
			_, err := d.EnrollAgent(d.ctx, root, "acme", control.EnrollAgent{Name: name})
			return err
		},
		"environments": func(d *fixture, name string) error {
			_, err := d.CreateEnvironment(d.ctx, root, "acme", control.CreateEnvironment{Name: name, MatchLabels: map[string]string{"a": "b"}})
			return err
		},
		"repositories": func(d *fixture, name string) error {
			_, err := d.CreateRepository(d.ctx, root, "acme", control.CreateRepository{URL: "https://git.example.com/" + name})
			return err
		},
		"deployments": func(d *fixture, name string) error {
			_, err := d.CreateDeployment(d.ctx, root, "acme", control.CreateDeployment{
				Name: name, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
			})
			return err
		},
		"tokens": func(d *fixture, name string) error {
			_, _, err := d.CreateAPIToken(d.ctx, root, "acme", control.CreateAPIToken{Name: name, Role: fleet.RoleViewer})
			return err
		},
	}
	for what, one := range add {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			_, err := d.CreateTenant(d.ctx, root, control.CreateTenant{
				Name: "acme", Quota: fleet.Quota{Agents: 2, Environments: 3, Repositories: 2, Deployments: 2, Tokens: 2},
			})
			ok(t, err)
			ok(t, one(d, "one"))
			ok(t, one(d, "two"))
			before := d.lastChange(t)
			var over *quota.ExceededError
			limit := 2
			if what == "environments" {
				limit = 3 // the default one counts
			}
			if err := one(d, "three"); !errors.As(err, &over) || over.What != what || over.Limit != limit || over.Tenant != "acme" {
				t.Fatalf("got %v", err)
			}
			if d.lastChange(t) != before {
				t.Error("something was stored")
			}
			_, err = d.UpdateTenant(d.ctx, root, "acme", control.UpdateTenant{Quota: &fleet.Quota{}}, control.Match{})
			ok(t, err)
			ok(t, one(d, "three"))
		})
	}
}

// covers: T3
func TestQuotaOfTargetsHoldsHoweverTheyComeAbout(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	_, err := d.CreateTenant(d.ctx, root, control.CreateTenant{Name: "acme", Quota: fleet.Quota{Targets: 2}})
	ok(t, err)
	d.enroll(t, "acme", "paris", nil)
	d.deploy(t, "acme", "web", "")
	d.enroll(t, "acme", "rome", nil)
	over := func(what string, err error) {
		t.Helper()
		var quota *quota.ExceededError
		if !errors.As(err, &quota) || quota.What != "targets" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = d.EnrollAgent(d.ctx, root, "acme", control.EnrollAgent{Name: "oslo"})
	over("an agent", err)
	if _, err := d.Agent(d.ctx, root, "acme", "oslo"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the agent is there: %v", err)
	}
	_, err = d.CreateDeployment(d.ctx, root, "acme", control.CreateDeployment{Name: "api", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"}})
	over("a deployment", err)
	_, err = d.UpdateEnvironment(d.ctx, root, "acme", "default", control.UpdateEnvironment{Agents: &[]string{"paris"}}, control.Match{})
	ok(t, err)
	d.enroll(t, "acme", "oslo", nil)
	_, err = d.UpdateEnvironment(d.ctx, root, "acme", "default", control.UpdateEnvironment{Agents: &[]string{}}, control.Match{})
	over("a wider selector", err)
}

// The quota of its users does not limit a tenant that has granted an environment.
func TestQuotaOfAGuestNeverRefusesTheHost(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "host")
	_, err := d.CreateTenant(d.ctx, root, control.CreateTenant{Name: "guest", Quota: fleet.Quota{Targets: 1}})
	ok(t, err)
	d.enroll(t, "host", "paris", nil)
	_, err = d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "guest"})
	ok(t, err)
	d.deploy(t, "guest", "web", "host/default")
	d.enroll(t, "host", "rome", nil)
	if got := d.targets(t, "guest", "web"); len(got) != 2 {
		t.Errorf("got %d targets", len(got))
	}
}

// covers: A17
func TestSuspensionHoldsAndResumeGivesWhatWasMissed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason          string
		suspend, resume func(d *fixture) error
	}{
		"Tenant": {
			"a tenant is held with everything in it",
			func(d *fixture) error { _, err := d.SuspendTenant(d.ctx, root, "acme", "audit"); return err },
			func(d *fixture) error { _, err := d.ResumeTenant(d.ctx, root, "acme"); return err },
		},
		"Environment": {
			"an environment is suspended for all its users",
			func(d *fixture) error {
				_, err := d.SuspendEnvironment(d.ctx, root, "host", "default", "audit")
				return err
			},
			func(d *fixture) error { _, err := d.ResumeEnvironment(d.ctx, root, "host", "default"); return err },
		},
		"Host": {
			"what a suspended tenant has granted is held too",
			func(d *fixture) error { _, err := d.SuspendTenant(d.ctx, root, "host", "audit"); return err },
			func(d *fixture) error { _, err := d.ResumeTenant(d.ctx, root, "host"); return err },
		},
		"Fleet": {
			"a freeze holds everything",
			func(d *fixture) error { _, err := d.Freeze(d.ctx, root, "audit"); return err },
			func(d *fixture) error { _, err := d.Unfreeze(d.ctx, root); return err },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.tenant(t, "host")
			d.tenant(t, "acme")
			d.enroll(t, "host", "paris", nil)
			_, err := d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "acme"})
			ok(t, err)
			d.deploy(t, "acme", "web", "host/default")
			first := d.render(t, "acme", "web", "1")
			ok(t, tc.suspend(d))
			quiet := d.lastChange(t)
			ok(t, tc.suspend(d))
			if d.lastChange(t) != quiet {
				t.Error("the same suspension twice is a change")
			}
			second := d.rendered(t, "acme", "web", configMap("a", "2"))
			d.enroll(t, "host", "rome", nil)
			got := d.targets(t, "acme", "web")
			if got["paris"].Desired.Digest != first || got["rome"].Desired.Digest != "" {
				t.Errorf("%s, but: %+v", tc.reason, got)
			}
			ok(t, tc.resume(d))
			for agent, target := range d.targets(t, "acme", "web") {
				if target.Desired.Digest != second {
					t.Errorf("%s has not got what it missed: %+v", agent, target.Desired)
				}
			}
			quiet = d.lastChange(t)
			ok(t, tc.resume(d))
			if d.lastChange(t) != quiet {
				t.Error("a second resume is a change")
			}
		})
	}
}

func TestFleetIsSummedUpForItsAdmins(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	a := d.enroll(t, "acme", "paris", nil)
	d.enroll(t, "acme", "rome", nil)
	d.deploy(t, "acme", "web", "")
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		return tx.Connections().Put(d.ctx, fleet.Connection{
			SessionID: fleet.NewSessionID(), AgentID: a.ID, TenantID: acme.ID, Replica: "one", Server: "s", ConnectedAt: d.clock.Now(), LastSeenAt: d.clock.Now(),
		})
	}))
	got, err := d.Fleet(d.ctx, root)
	ok(t, err)
	if got.Agents != 2 || got.Connected != 1 || got.Deployments != 1 || got.Targets != 2 {
		t.Errorf("got %+v", got)
	}
	if _, err := d.Fleet(d.ctx, member(acme, fleet.RoleAdmin)); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("an admin of a tenant: %v", err)
	}
}
