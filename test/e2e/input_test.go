package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// badInput is a request with one invalid field.
type badInput struct {
	method, path, body string
	field              string // that the answer names
	code               int    // 422 when 0
}

func badInputs(repoURL string) []badInput {
	source := `"source":{"repoURL":"` + repoURL + `"}`
	return []badInput{
		{"POST", "/tenants", `{"name":"Not A Name"}`, "name", 0},
		{"POST", "/tenants", `{"name":"x","quota":{"agents":-1}}`, "agents", 0},
		{"POST", "/tenants", `{}`, "name", 0},
		{"POST", "agents", `{"name":""}`, "name", 0},
		{"POST", "agents", `{"name":"` + strings.Repeat("a", 64) + `"}`, "name", 0},
		{"POST", "agents", `{"name":"x","labels":{"":"v"}}`, "labels", 0},
		{"POST", "agents", `{"name":"x","namespaces":["UP"]}`, "namespaces", 0},
		{"POST", "agents", `{"name":"x","token":"12345678901234567890123456789012"}`, "token", 0},
		{"POST", "agents", `{"name":"x","serverAddress":"ftp://x"}`, "serverAddress", 0},
		{"POST", "agents", `{"name":"x","unknown":1}`, "unknown", 0},
		{"POST", "agents", `{"name":7}`, "name", 0},
		{"POST", "agents", `{"name":`, "", 400},
		{"POST", "agents", ``, "", 400},
		{"PATCH", "agents/here", `{"labels":{"bad key!":"v"}}`, "labels", 0},
		{"POST", "agents/here/tokens", `{"token":"short"}`, "token", 0},
		{"POST", "environments", `{"name":"x","agents":["nobody"]}`, "agents", 0},
		{"PATCH", "environments/default", `{"agents":["nobody"]}`, "agents", 0},
		{"POST", "grants", `{"environment":"default","grantee":"nobody"}`, "grantee", 0},
		{"POST", "grants", `{"environment":"nowhere","grantee":"default"}`, "environment", 0},
		{"POST", "grants", `{"environment":"default","grantee":"default","limits":{"kinds":["a b"]}}`, "kinds", 0},
		{"POST", "credentials", `{"name":"x","kind":"telnet","secret":"s"}`, "kind", 0},
		{"POST", "credentials", `{"name":"x","kind":"https","secret":""}`, "secret", 0},
		{"POST", "repositories", `{"url":"ftp://git.example.com/x"}`, "url", 0},
		{"POST", "repositories", `{"url":"https://user:pass@git.example.com/x"}`, "url", 0},
		{"POST", "repositories", `{"url":"https://git.example.com/x","credential":"none"}`, "credential", 0},
		{"POST", "deployments", `{"name":"x","source":{"repoURL":"ext::sh -c id"}}`, "repoURL", 0},
		{"POST", "deployments", `{"name":"x",` + source + `,"environment":"nowhere"}`, "environment", 0},
		{"POST", "deployments", `{"name":"x",` + source + `,"namespace":"UP"}`, "namespace", 0},
		{"POST", "deployments", `{"name":"x","source":{"repoURL":"` + repoURL + `","path":"../up"}}`, "path", 0},
		{"POST", "deployments", `{"name":"x","source":{"repoURL":"` + repoURL + `","globs":["[a"]}}`, "globs", 0},
		{"POST", "deployments", `{"name":"x","source":{"repoURL":"` + repoURL + `","revision":"--upload-pack=x"}}`, "revision", 0},
		{"PATCH", "deployments/web", `{"source":{"path":"/abs/../.."}}`, "path", 0},
		{"PATCH", "deployments/web", `{"name":"other"}`, "name", 0},
		{"POST", "deployments/web/runs", `{"revision":"-x"}`, "revision", 0},
		{"POST", "deployments/web/rollback", `{"revision":-1}`, "revision", 0},
		{"POST", "deployments/web/rollback", `{"revision":99}`, "revision", 0},
		{"POST", "deployments/web/rollback", `{}`, "revision", 0},
		{"POST", "tokens", `{"name":"x","role":"king"}`, "role", 0},
		{"POST", "tokens", `{"name":"x","role":"viewer","expiresIn":"soon"}`, "expiresIn", 0},
		{"PUT", "members/robot/x", `{"role":"viewer"}`, "kind", 0},
		{"PUT", "members/person/x", `{"role":"king"}`, "role", 0},
	}
}

// everything reads all resources of a tenant and of the fleet, without the background work of the server.
func everything(tb testing.TB, d tenantClient) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for _, path := range []string{
		"/tenants", "/tokens", "agents/here/tokens", "environments", "grants", "credentials", "tokens", "members", "deployments/web/runs", "operations", "audit",
	} {
		out[path] = string(d.want(tb, 200, "GET", path, nil).Body)
	}
	for _, v := range get[apiv1.List[apiv1.Agent]](tb, d, "agents").Items {
		out["agent "+v.Name] = fmt.Sprint(v.SpecRevision, v.Targets)
	}
	for _, v := range get[apiv1.List[apiv1.Deployment]](tb, d, "deployments").Items {
		out["deployment "+v.Name] = fmt.Sprint(v.SpecRevision)
	}
	for _, v := range get[apiv1.List[apiv1.Repository]](tb, d, "repositories").Items {
		out["repository "+v.URL] = fmt.Sprint(v.SpecRevision)
	}
	return out
}

// covers: T6
func TestBadInputNamesTheFieldAndChangesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, commit := pushTo(t, "one")
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
		light(t, d, "here")
		d.await(t, "web", healthyAt(commit, 1))
		before := everything(t, d)
		for _, c := range badInputs(repo.url) {
			want := c.code
			if want == 0 {
				want = http.StatusUnprocessableEntity
			}
			answer := d.ask(t, c.method, c.path, []byte(c.body))
			if answer.Code != want || answer.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s %s answers %d (%s), not %d: %s", c.method, c.path, c.body, answer.Code, answer.Header.Get("Content-Type"), want, answer.Body)
				continue
			}
			problem := decode[apiv1.Problem](t, answer)
			named := c.field == ""
			for _, e := range problem.Errors {
				named = named || strings.Contains(e.Location, c.field) || strings.Contains(e.Message, c.field)
			}
			if !named || problem.Detail == "" {
				t.Errorf("%s %s %s does not name %s: %s", c.method, c.path, c.body, c.field, answer.Body)
			}
		}
		if diff := cmp.Diff(before, everything(t, d)); diff != "" {
			t.Errorf("bad input has changed something:\n%s", diff)
		}
		huge := d.ask(t, "POST", "agents", bytes.Repeat([]byte("x"), 3<<20))
		if huge.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("3 MiB are answered with %d %s", huge.Code, huge.Body)
		}
	})
}
