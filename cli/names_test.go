package cli_test

import (
	"strings"
	"testing"
)

// covers: O4 (selectors)
func TestSelectorsReachTheServer(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const tenant = "GET /api/v1/tenants/default/"
	cases := []struct {
		args      []string
		key, want string
	}{
		{[]string{"get", "-l", "team=web,tier in (db,cache),!legacy", "dep"}, tenant + "deployments", "labelSelector=team%3Dweb%2Ctier+in+%28db%2Ccache%29%2C%21legacy&limit=500"},
		{[]string{"agent", "ls", "--selector", "a", "-l", "b!=c"}, tenant + "agents", "labelSelector=a%2Cb%21%3Dc&limit=500"},
		{[]string{"get", "deployments", "--environment", "eu"}, tenant + "deployments", "environment=eu&limit=500"},
		{[]string{"get", "deployments", "--env", "eu", "--label", "a=b"}, tenant + "deployments", "environment=eu&label=a%3Db&limit=500"},
	}
	for _, c := range cases {
		if r := run(t, env, "", c.args...); r.code != 0 {
			t.Errorf("kedge %q: %s", c.args, r)
		}
		s.set(func(s *server) {
			// A listing of several pages ends with its cursor.
			if got, _, _ := strings.Cut(strings.TrimPrefix(s.queries[c.key], "after=new&"), "&after"); got != c.want {
				t.Errorf("kedge %q asked for %q, want %q", c.args, got, c.want)
			}
		})
	}
}

// covers: O4 (several names per command)
func TestCommandsTakeSeveralNames(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	for args, keys := range map[string][]string{
		"deploy delete web deployment/away --yes": {"DELETE deployments/web", "DELETE deployments/away"},
		"deployment suspend web failing":          {"POST deployments/web/suspend", "POST deployments/failing/suspend"},
		"sync web dep/nowhere":                    {"POST deployments/web/runs", "POST deployments/nowhere/runs"},
		"environments delete eu us":               {"DELETE environments/eu", "DELETE environments/us"},
		"repo refresh rep-1 repository/rep-2":     {"POST repositories/rep-1/refresh", "POST repositories/rep-2/refresh"},
	} {
		if r := run(t, env, "", strings.Fields(args)...); r.code != 0 {
			t.Errorf("kedge %s: %s", args, r)
		}
		s.set(func(s *server) {
			for _, key := range keys {
				method, path, _ := strings.Cut(key, " ")
				if _, ok := s.got[method+" /api/v1/tenants/default/"+path]; !ok {
					t.Errorf("kedge %s did not send %s", args, key)
				}
			}
		})
	}
	// A name that fails does not stop the others.
	r := run(t, env, "", "agent", "delete", "x", "prod", "y")
	if r.code != 1 || strings.Count(r.err, "was not found") != 2 || !strings.Contains(r.out, `Agent "prod" deleted`) {
		t.Errorf("with two wrong names: %s", r)
	}
	// Nothing is deleted when one of the names is wrong.
	s.set(func(s *server) { delete(s.got, "DELETE /api/v1/tenants/default/deployments/web") })
	if r := run(t, env, "", "deploy", "delete", "web", "nothing", "--yes"); r.code != 1 {
		t.Errorf("with a wrong name: %s", r)
	}
	s.set(func(s *server) {
		if _, ok := s.got["DELETE /api/v1/tenants/default/deployments/web"]; ok {
			t.Error("a deployment was deleted although another name was wrong")
		}
	})
}
