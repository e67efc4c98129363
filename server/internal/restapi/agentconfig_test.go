package restapi_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// covers: F1 (errors visible at the server, by field and line)
func TestConfigurationsInGitReadAsRecorded(t *testing.T) {
	t.Parallel()
	const base = "/api/v1/tenants/default/"
	for name, c := range map[string]struct{ method, path, body string }{
		"agent-config":    {"GET", "agents/prod/config", ""},
		"gitlab-project":  {"PUT", "gitlab-projects/group%2Fapp", `{"repoURL":"https://git.example/app.git"}`},
		"gitlab-projects": {"GET", "gitlab-projects", ""},
	} {
		got := do(t, restapi.New(config(), newFixture(t)), c.method, base+c.path, c.body)
		if got.status != 200 {
			t.Fatalf("%s: got %d %s", name, got.status, got.body)
		}
		testkit.Golden(t, name+".json", got.pretty(t))
	}
}
