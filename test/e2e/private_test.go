package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// repository finds a repository of the tenant by its URL.
func (d tenantClient) repository(tb testing.TB, url string) apiv1.Repository {
	tb.Helper()
	for _, r := range get[apiv1.List[apiv1.Repository]](tb, d, "repositories").Items {
		if r.URL == url {
			return r
		}
	}
	tb.Fatalf("the tenant knows no repository %s", url)
	return apiv1.Repository{}
}

// awaitReadable waits until a repository can be read, or cannot, and returns why.
func (d tenantClient) awaitReadable(tb testing.TB, url string, want bool) string {
	tb.Helper()
	id := d.repository(tb, url).ID
	var r apiv1.Repository
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		r = apiv1.Repository{}
		err := d.Call(ctx, "GET", d.path("repositories/"+id), nil, &r)
		if err == nil && (r.CheckedAt.IsZero() || (r.Error == "") != want) {
			err = fmt.Errorf("the repository is %+v", r)
		}
		return err
	})
	return r.Error
}

// covers: G2, G3, G1
func TestPrivateRepositoryFollowsItsCredential(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, first := pushTo(t, "one")
		protect := func(password string) { repo.server.Protect(repo.name, map[string]string{"robot": password}) }
		rotate := func(secret string) {
			d.want(t, 200, "PATCH", "credentials/git", apiv1.UpdateCredential{Secret: &secret})
		}
		protect("first-password")
		light(t, d, "prod")
		d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "git", Kind: "https", Username: "robot", Secret: "first-password"})
		d.want(t, 201, "POST", "repositories", apiv1.CreateRepository{URL: repo.url, Credential: "git"})
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
		d.await(t, "web", healthyAt(first, 1))

		// Valid to valid: the Git host accepts only the new one.
		protect("second-password")
		rotate("second-password")
		second := repo.push(t, map[string]string{"cm.yaml": plainManifest("two")})
		d.look(t, repo.url)
		d.await(t, "web", healthyAt(second, 1))

		// Valid to invalid: the running state stays, and the status shows the error.
		rotate("wrong-password")
		why := d.awaitReadable(t, repo.url, false)
		third := repo.push(t, map[string]string{"cm.yaml": plainManifest("three")})
		v := d.await(t, "web", says("Failed", "not readable"))
		if v.Commit != second || v.Targets[0].Sync != "Synced" || v.Targets[0].Commit != second {
			t.Errorf("without a valid credential what ran does not go on: %+v", v)
		}
		// And back: it catches up by itself.
		rotate("second-password")
		d.await(t, "web", healthyAt(third, 1))
		d.awaitReadable(t, repo.url, true)

		d.refuses(t, repo, why)
		whole := s.Log() + why + string(d.want(t, 200, "GET", "credentials", nil).Body) + string(d.want(t, 200, "GET", "audit", nil).Body)
		if strings.Contains(whole, "-password") {
			t.Error("a password is in the log, the status, a listing or the audit log")
		}
		if a := d.ask(t, "DELETE", "credentials/git", nil); a.Code != 409 || !strings.Contains(string(a.Body), repo.url) && !strings.Contains(string(a.Body), "repositor") {
			t.Errorf("a credential that is in use is deleted: %d %s", a.Code, a.Body)
		}
	})
}

// refuses reads the same repository from a tenant without a credential for it, and one that does not exist:
// both must look the same.
func (d tenantClient) refuses(t *testing.T, repo *testRepo, why string) {
	t.Helper()
	stranger := d.other(t, "stranger")
	missing := repo.server.URL("no-such-repository")
	errs := map[string]string{}
	for _, url := range []string{repo.url, missing} {
		checked := stranger.want(t, 422, "POST", "deployments", apiv1.CreateDeployment{Name: "spy", Source: apiv1.Source{RepoURL: url}})
		errs["checked "+url] = strings.ReplaceAll(string(checked.Body), url, "URL")
		stranger.want(t, 201, "POST", "deployments?check=false", apiv1.CreateDeployment{Name: "spy-" + fmt.Sprint(len(errs)), Source: apiv1.Source{RepoURL: url}})
		errs[url] = strings.ReplaceAll(stranger.awaitReadable(t, url, false), url, "URL")
	}
	if errs["checked "+repo.url] != errs["checked "+missing] {
		t.Errorf("the check tells a repository of others %q, a missing one %q", errs["checked "+repo.url], errs["checked "+missing])
	}
	if errs[repo.url] != errs[missing] {
		t.Errorf("a repository of others reads %q, a missing one %q", errs[repo.url], errs[missing])
	}
	// An invalid credential reveals nothing more.
	stranger.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "git", Kind: "https", Username: "robot", Secret: "guess"})
	name := "git"
	for _, url := range []string{repo.url, missing} {
		stranger.want(t, 200, "PATCH", "repositories/"+stranger.repository(t, url).ID, apiv1.UpdateRepository{Credential: &name})
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		a, b := stranger.repository(t, repo.url), stranger.repository(t, missing)
		if strings.ReplaceAll(a.Error, repo.url, "URL") != strings.ReplaceAll(b.Error, missing, "URL") || a.Error == "" {
			return fmt.Errorf("with a guessed credential a repository of others reads %q, a missing one %q", a.Error, b.Error)
		}
		if got, want := strings.ReplaceAll(a.Error, repo.url, "URL"), strings.ReplaceAll(why, repo.url, "URL"); got != want {
			return fmt.Errorf("it reads %q, and for its owner with a wrong password %q", got, want)
		}
		return nil
	})
	if v := get[apiv1.Deployment](t, stranger, "deployments/spy-1"); v.Commit != "" || len(v.Targets) != 0 && v.Targets[0].Commit != "" {
		t.Errorf("another tenant got commit %s", v.Commit)
	}
}

// other returns a client of the same person in a new tenant.
func (d tenantClient) other(tb testing.TB, tenant string) tenantClient {
	tb.Helper()
	d.want(tb, 201, "POST", "/tenants", apiv1.CreateTenant{Name: tenant})
	return tenantClient{Server: d.Server, tenant: tenant}
}

// look refreshes a repository.
func (d tenantClient) look(tb testing.TB, url string) {
	tb.Helper()
	d.want(tb, 204, "POST", "repositories/"+d.repository(tb, url).ID+"/refresh", nil)
}
