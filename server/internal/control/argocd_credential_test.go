package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// A Git credential is sent only to an agent of its own tenant that was enrolled for it.
// covers: E2
func TestGitCredentialsAreSentOnlyWhereTheyAreEnabled(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	enroll := func(name string, deliver bool) fleet.Agent {
		made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: name, EngineNamespace: "argocd", DeliverGitCredentials: deliver})
		ok(t, err)
		return made.Agent
	}
	enabled, disabled := enroll("enabled", true), enroll("disabled", false)
	d.tenant(t, "guest")
	_, err := d.CreateGrant(d.ctx, root, "default", control.CreateGrant{Environment: "default", Grantee: "guest"})
	ok(t, err)
	const url = "https://git.example.com/apps.git"
	for _, tenant := range []string{"default", "guest"} {
		_, err := d.CreateCredential(d.ctx, root, tenant, control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "robot", Secret: tenant + "-secret"})
		ok(t, err)
		_, err = d.CreateRepository(d.ctx, root, tenant, control.CreateRepository{URL: url, Credential: "git"})
		ok(t, err)
		environment := "default"
		if tenant == "guest" {
			environment = "default/default"
		}
		_, err = d.CreateDeployment(d.ctx, root, tenant, control.CreateDeployment{
			Name: "app", Environment: environment, Source: fleet.Source{RepoURL: url, Path: "app", Kind: fleet.SourcePlain},
		})
		ok(t, err)
		d.render(t, tenant, "app", "1")
	}
	want := func(agent fleet.Agent, want map[string]string) {
		t.Helper()
		targets, err := d.TargetsOf(d.ctx, agent, nil)
		ok(t, err)
		got := map[string]string{}
		for _, target := range targets {
			got[target.Tenant] = string(target.Source.Withheld)
			if c := target.Source.Credential; c != nil {
				got[target.Tenant] += c.Username + " " + c.Secret.Reveal()
				if text := fmt.Sprintf("%v %+v %#v", *c, *target.Source, *c); strings.Contains(text, "-secret") {
					t.Errorf("the secret is printed: %s", text)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("agent %s gets %v, want %v", agent.Name, got, want)
		}
	}
	want(enabled, map[string]string{"default": "robot default-secret", "guest": "OtherTenant"})
	want(disabled, map[string]string{"default": "NotEnabled", "guest": "OtherTenant"})
	secret := "rotated-secret"
	_, err = d.UpdateCredential(d.ctx, root, "default", "git", control.UpdateCredential{Secret: &secret}, control.Match{})
	ok(t, err)
	want(enabled, map[string]string{"default": "robot rotated-secret", "guest": "OtherTenant"})

	if _, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "builtin", DeliverGitCredentials: true}); err == nil {
		t.Error("an agent that applies by itself is enrolled for Git credentials")
	}
}
