package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// A team's whole life, by the command line alone.
//
// covers: O4, T1, G2
func TestCommandLineWalksThroughATenant(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	repo, commit := pushTo(t, "one")
	repo.server.Protect(repo.name, map[string]string{"robot": "the-password"})
	dir := t.TempDir()
	secret, agentToken, ciToken := filepath.Join(dir, "secret"), filepath.Join(dir, "agent"), filepath.Join(dir, "ci")
	if err := os.WriteFile(secret, []byte("the-password\n"), 0o600); err != nil { // as echo writes it
		t.Fatal(err)
	}
	kedge := func(line string, wants ...string) string {
		t.Helper()
		out, err := s.kedge(t, strings.Fields(line)...)
		if err != nil {
			t.Fatalf("kedge %s: %v\n%s", line, err, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("kedge %s does not say %q:\n%s", line, want, out)
			}
		}
		return out
	}
	refused := func(line, want string) {
		t.Helper()
		if out, err := s.kedge(t, strings.Fields(line)...); exitCode(err) != 1 || !strings.Contains(out, want) {
			t.Errorf("kedge %s ends with %d and does not say %q:\n%s", line, exitCode(err), want, out)
		}
	}
	kedge("tenant create shop --max-agents 2", "shop")
	kedge("tenant member set group web-team deployer --tenant shop")
	kedge("token create ci --role deployer --tenant shop --to-file " + ciToken)
	kedge("agent enroll edge --labels region=eu --tenant shop --agent-token-file " + agentToken)
	token, err := os.ReadFile(agentToken)
	if err != nil {
		t.Fatal(err)
	}
	newLightFleet(t, hostPort(s.URL)).run(t, "edge", strings.TrimSpace(string(token))).awaitReady(t)
	kedge("env create eu --match-labels region=eu --tenant shop")
	kedge("credential create git --username robot --tenant shop --secret-file " + secret)
	kedge("repo add "+repo.url+" --credential git --tenant shop", repo.url)
	kedge("deploy create web --repo "+repo.url+" --env eu --wait --tenant shop", "is synced and healthy on 1 target", commit[:12])

	kedge("get deployments --tenant shop --environment eu", "web", "Synced", "1/1")
	if got := kedge("deploy get -o name --tenant shop"); strings.TrimSpace(got) != "deployment/web" {
		t.Errorf("kedge deploy get -o name prints %q", got)
	}
	var one apiv1.Deployment
	if err := json.Unmarshal([]byte(kedge("deploy get web -o json --tenant shop")), &one); err != nil || one.Commit != commit {
		t.Errorf("kedge deploy get -o json: %v, %+v", err, one)
	}
	kedge("repo get -o yaml --tenant shop", "credential: git")
	kedge("env get eu --tenant shop", "region=eu", "Active")
	kedge("get agents --tenant shop", "edge", "Connected")
	kedge("deploy history web --tenant shop", "Newest", commit[:12])
	kedge("deploy set web --labels team=web --tenant shop")
	kedge("get deployments --label team=web -o name --tenant shop", "web")
	kedge("deploy set web --labels= --tenant shop")
	if got := kedge("get deployments --label team=web -o name --tenant shop"); strings.TrimSpace(got) != "" {
		t.Errorf("labels that were removed still select %q", got)
	}
	kedge("agent rotate-token edge --wait --tenant shop", "has a new token")

	// Everything in use is kept, with the reason; then everything is deleted in order.
	refused("tenant delete shop", "deployments")
	refused("env delete eu --tenant shop", "web")
	refused("credential delete git --tenant shop", "git")
	refused("repo delete "+repo.url+" --tenant shop", "deployment")
	refused("agent delete nobody --tenant shop", "kedge get agents")
	kedge("deploy delete web --yes --wait --tenant shop", "is gone")
	kedge("repo delete " + repo.url + " --tenant shop")
	kedge("credential delete git --tenant shop")
	kedge("env delete eu --tenant shop")
	kedge("agent delete edge --tenant shop")
	kedge("tenant delete shop", "deleted")
	if out := kedge("tenant get -o name"); strings.Contains(out, "shop") {
		t.Errorf("the tenant is still listed:\n%s", out)
	}
}
