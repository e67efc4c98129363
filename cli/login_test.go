package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// A login works in a tenant that its token may use, without a word about tenants on any later command.
func TestLoginStoresATenantOfTheCaller(t *testing.T) {
	t.Parallel()
	member := func(tenants ...string) (out []apiv1.Membership) {
		for _, tenant := range tenants {
			out = append(out, apiv1.Membership{Tenant: tenant, Role: "deployer"})
		}
		return out
	}
	for _, c := range []struct {
		reason  string
		tenants []apiv1.Membership
		env     string
		args    []string
		want    string
	}{
		{"a fleet admin has no memberships", nil, "", nil, "default"},
		{"one tenant", member("team-a"), "", nil, "team-a"},
		{"the first of several", member("team-a", "team-b"), "", nil, "team-a"},
		{"default, if it is one of them", member("a", "default"), "", nil, "default"},
		{"the flag", member("team-a", "team-b"), "", []string{"--tenant", "team-b"}, "team-b"},
		{"the environment", member("team-a", "team-b"), "team-b", nil, "team-b"},
		{"the flag goes before the environment", member("team-a", "team-b"), "team-b", []string{"--tenant", "team-a"}, "team-a"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			url, asked := tenantServer(t, apiv1.Whoami{Name: "ci", Role: "deployer", Tenants: c.tenants})
			env := map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "KEDGE_TENANT": c.env}
			if r := run(t, env, token, append([]string{"login", url}, c.args...)...); r.code != 0 || !strings.Contains(r.out, `tenant "`+c.want+`"`) {
				t.Fatal(r)
			}
			delete(env, "KEDGE_TENANT")
			if r := run(t, env, "", "get", "agents"); r.code != 0 || asked() != c.want {
				t.Errorf("it asked for tenant %q, want %q: %s", asked(), c.want, r)
			}
			env["KEDGE_TENANT"] = "elsewhere"
			if r := run(t, env, "", "get", "agents"); r.code != 0 || asked() != "elsewhere" {
				t.Errorf("KEDGE_TENANT is ignored: it asked for tenant %q: %s", asked(), r)
			}
		})
	}
}

// tenantServer says who the caller is, and which tenant's agents were listed last.
func tenantServer(t *testing.T, who apiv1.Whoami) (url string, asked func() string) {
	t.Helper()
	var mu sync.Mutex
	var last string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/whoami", func(w http.ResponseWriter, _ *http.Request) { write(w, 200, who) })
	mux.HandleFunc("GET /api/v1/tenants/{tenant}/agents", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		last = r.PathValue("tenant")
		write(w, 200, apiv1.List[apiv1.Agent]{})
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}
