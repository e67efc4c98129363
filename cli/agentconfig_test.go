package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// configServer answers what is asked of configurations in Git, and tells what it was asked.
func configServer(t *testing.T, asked chan<- string) string {
	t.Helper()
	config := apiv1.AgentConfig{
		Agent: "prod", RepoURL: "https://git.example/fleet.git", State: "Invalid", File: ".kedge/agents/prod/config.yaml",
		Commit: strings.Repeat("b", 40), LiveCommit: strings.Repeat("a", 40), MoreErrors: 3,
		Errors:  []apiv1.ConfigFinding{{Field: "deployments[0].policy.drift", Line: 7, Message: `"fix" is not one of correct, report, ignore`}},
		Notices: []apiv1.ConfigFinding{{Field: "ci_access", Line: 20, Message: "is not used"}},
		Deployments: []apiv1.ConfigDeployment{
			{Name: "old", Deployment: "prod.old", OnRemove: "keep", ReleasedAt: now.Add(-time.Hour)},
			{Name: "web", Deployment: "prod.web", OnRemove: "prune"},
		},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.HasSuffix(r.URL.Path, "/whoami") { // which is how a login is checked
			asked <- strings.TrimSpace(r.Method + " " + strings.TrimPrefix(r.URL.EscapedPath(), "/api/v1/tenants/default/") + " " + string(body))
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(r.URL.Path, "/none/config"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"status":404,"detail":"not found"}`))
		case strings.HasSuffix(r.URL.Path, "/gitlab-projects"):
			_ = json.NewEncoder(w).Encode(apiv1.List[apiv1.GitLabProject]{Items: []apiv1.GitLabProject{{Project: "42", RepoURL: "https://git.example/app.git"}}})
		default:
			_ = json.NewEncoder(w).Encode(config)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// covers: F1 (errors by field in the command line)
func TestConfigurationsInGitAreSetAndShown(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		asked string
		code  int
		says  []string
	}{
		"agent config get prod": {"GET agents/prod/config", 0, []string{
			"Invalid: the configuration that was applied before stays in force", "Errors:\n  line 7: deployments[0].policy.drift: \"fix\" is not one of correct, report, ignore\n  and 3 more",
			"Not used:\n  line 20: ci_access: is not used", "prod.web", "Released (60m)", "aaaaaaaaaaaa",
		}},
		"agent config get prod -o json":                      {"GET agents/prod/config", 0, []string{`"field": "deployments[0].policy.drift"`}},
		"agent config get prod -o name":                      {"GET agents/prod/config", 0, []string{"agent/prod"}},
		"agent config get prod -o xml":                       {"", 2, []string{"output format \"xml\" is not supported here"}},
		"agent config get none":                              {"GET agents/none/config", 1, []string{"kedge agent config set none URL"}},
		"agent config set prod https://git.example/f.git":    {`PUT agents/prod/config {"repoURL":"https://git.example/f.git"}`, 0, []string{"kedge agent config get prod"}},
		"agent config unset prod":                            {"DELETE agents/prod/config", 0, []string{"their objects stay"}},
		"gitlab-project set group/app https://git.example/a": {`PUT gitlab-projects/group%2Fapp {"repoURL":"https://git.example/a"}`, 0, []string{"group/app is at https://git.example/a"}},
		"gitlab-project unset 42":                            {"DELETE gitlab-projects/42", 0, []string{"42"}},
		"gitlab-project get":                                 {"GET gitlab-projects", 0, []string{"https://git.example/app.git"}},
	}
	for args, tt := range tests {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 10)
			r := run(t, home(t, configServer(t, asked)), "", strings.Fields(args)...)
			if r.code != tt.code {
				t.Errorf("it ended with %s, want code %d", r, tt.code)
			}
			close(asked)
			if got := <-asked; got != tt.asked {
				t.Errorf("it asked %q, want %q", got, tt.asked)
			}
			for _, text := range tt.says {
				if !strings.Contains(r.out+r.err, text) {
					t.Errorf("it does not say %q:\n%s", text, r)
				}
			}
		})
	}
}
