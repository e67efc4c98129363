package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// awaitSample waits until a metric has a value.
func awaitSample(tb testing.TB, base, series string, want func(float64) bool) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		_, page, err := fetch(ctx, http.DefaultClient, base+"/metrics")
		if err != nil {
			return err
		}
		value, err := sample(page, series)
		if err == nil && !want(value) {
			err = fmt.Errorf("%s is %v", series, value)
		}
		return err
	})
}

func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

// covers: O1
func TestHealthAndMetricsOnBothSides(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	awaitSample(t, s.Health, "kedge_gateway_connected_agents", is(0))
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "measured"})
	health := a.health(t)
	for _, base := range []string{s.Health, health} {
		for _, path := range []string{"/livez", "/readyz"} {
			// The server has the connection shortly before the agent is ready.
			testkit.Eventually(t, patience, func(ctx context.Context) error {
				code, body, err := fetch(ctx, http.DefaultClient, base+path)
				if err == nil && code != http.StatusOK {
					err = fmt.Errorf("%s%s answers %d %q", base, path, code, body)
				}
				return err
			})
		}
		_, page, err := fetch(t.Context(), http.DefaultClient, base+"/metrics")
		for _, name := range []string{"kedge_build_info{", "process_resident_memory_bytes ", "go_goroutines "} {
			if err != nil || !strings.Contains(page, "\n"+name) {
				t.Errorf("%s/metrics has no %s, %v", base, name, err)
			}
		}
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusNotFound} {
		code, body, err := fetch(t.Context(), http.DefaultClient, s.URL+path)
		if err != nil || code != want || strings.Contains(body, "kedge_") {
			t.Errorf("the public port answers %s with %d %q, %v", path, code, body, err)
		}
	}
	awaitSample(t, s.Health, "kedge_gateway_connected_agents", is(1))
	awaitSample(t, health, "kedge_agent_connected", is(1))

	first := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "measured", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "measured", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "measured", healthyAt(first, 1))
	awaitSample(t, s.Health, "kedge_push_to_committed_seconds_count", is(0)) // no push was announced yet
	repo.webhooks(t, s)
	second := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "measured", "two")})
	s.awaitDeployment(t, "measured", healthyAt(second, 1))
	awaitSample(t, s.Health, "kedge_push_to_committed_seconds_count", is(1))
	awaitSample(t, s.Health, "kedge_push_to_committed_seconds_sum", func(seconds float64) bool { return seconds > 0 && seconds < patience.Seconds() })
	awaitSample(t, s.Health, `kedge_gateway_desired_sent_total{form="inline"}`, is(2))
	awaitSample(t, health, `kedge_agent_frames_total{direction="in",frame="desired"}`, is(2))

	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	awaitSample(t, s.Health, "kedge_gateway_connected_agents", is(0))
}

// covers: O2, and invariant 9
func TestLogsSayWhatTheyAreAboutAndHoldNoSecret(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "logged"})
	good := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "logged", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "logged", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "logged", healthyAt(good, 1))
	repo.webhooks(t, s)
	broken := repo.push(t, map[string]string{"cm.yaml": "kind: [ConfigMap\n"})
	s.awaitDeployment(t, "logged", func(d apiv1.Deployment) error {
		if d.SourceError == "" || d.Commit != good {
			return fmt.Errorf("the broken manifest is not told of")
		}
		return nil
	})
	mended := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "logged", "two")})
	s.awaitDeployment(t, "logged", healthyAt(mended, 1))
	secrets := misuse(t, s, a, repo)
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}

	server, agent := logLines(t, s.Process), logLines(t, a.Process)
	for _, p := range []*rig.Process{s.Process, a.Process} {
		for what, secret := range secrets {
			if strings.Contains(p.Log(), secret) {
				t.Errorf("the log of %s contains %s", p.Name(), what)
			}
		}
	}
	for _, commit := range []string{good, mended} {
		checkSyncLines(t, "server", server, commit)
		checkSyncLines(t, "agent", agent, commit)
	}
	for _, line := range append(server, agent...) {
		if line["level"] == "ERROR" {
			t.Errorf("a user error is logged as an internal error: %v", line)
		}
	}
	if !mentions(server, broken, func(line map[string]any) bool { return line[obs.KeyUserError] == true }) {
		t.Errorf("no line tells of commit %s as a user's mistake", broken)
	}
}

// misuse makes mistakes with secrets and returns all secrets that were used.
func misuse(t *testing.T, s *testServer, a *testAgent, repo *testRepo) map[string]string {
	t.Helper()
	agentToken, err := os.ReadFile(a.flag(t, "token-file"))
	if err != nil {
		t.Fatal(err)
	}
	accountToken, err := os.ReadFile(filepath.Join(filepath.Dir(a.flag(t, "kubeconfig")), "serviceaccount-token"))
	if err != nil {
		t.Fatal(err)
	}
	hook := s.webhook(t, repo.url)
	secrets := map[string]string{
		"the admin's token": s.Token, "the agent's token": string(agentToken), "the ServiceAccount's token": string(accountToken),
		"the secret of a webhook": hook.Secret, "a wrong secret of a webhook": "wrong-hook-secret", "a wrong token": "kedge-api-wrong-token",
		"a password in a URL": "git-password", "a token in a query": "kedge-api-in-query",
	}
	if code, err := sendHook(t.Context(), hook.URL, secrets["a wrong secret of a webhook"], ""); err != nil || code != http.StatusUnauthorized {
		t.Errorf("a webhook with a wrong signature gets %d, %v", code, err)
	}
	stranger := &rig.Server{URL: s.URL, HTTP: s.HTTP, Token: secrets["a wrong token"]}
	if err := stranger.Call(t.Context(), http.MethodGet, "/whoami", nil, nil); err == nil {
		t.Error("a wrong token is let in")
	}
	if err := s.Call(t.Context(), http.MethodGet, "/whoami?token="+secrets["a token in a query"], nil, nil); err == nil {
		t.Error("a token in a query is taken")
	}
	withPassword := strings.Replace(repo.url, "://", "://user:"+secrets["a password in a URL"]+"@", 1)
	if err := s.Call(t.Context(), http.MethodPost, tenantPath+"/deployments",
		apiv1.CreateDeployment{Name: "secret", Source: apiv1.Source{RepoURL: withPassword}}, nil); err == nil {
		t.Error("a URL with a password is taken")
	} else if strings.Contains(err.Error(), secrets["a password in a URL"]) {
		t.Errorf("the answer repeats the password: %v", err)
	}
	return secrets
}

func mentions(lines []map[string]any, commit string, check func(map[string]any) bool) bool {
	for _, line := range lines {
		if line[obs.KeyCommit] == commit && check(line) {
			return true
		}
	}
	return false
}

// checkSyncLines checks the log lines about a commit: one has tenant, agent, and deployment, and none has wrong
// names.
func checkSyncLines(t *testing.T, side string, lines []map[string]any, commit string) {
	t.Helper()
	want := map[string]string{obs.KeyTenant: "default", obs.KeyAgent: "logged", obs.KeyDeployment: "logged"}
	complete := mentions(lines, commit, func(line map[string]any) bool {
		for key := range want {
			if line[key] == nil {
				return false
			}
		}
		return true
	})
	if !complete {
		t.Errorf("the %s logs no line about commit %s with tenant, agent and deployment", side, commit)
	}
	for _, line := range lines {
		for key, name := range want {
			if line[key] != nil && line[key] != name && line["msg"] != "request" {
				t.Errorf("the %s calls the %s %q, not %q, in %v", side, key, line[key], name, line)
			}
		}
		if line[obs.KeyCommit] != nil && (line[obs.KeyTenant] == nil || line[obs.KeyDeployment] == nil) {
			t.Errorf("the %s logs a commit without tenant or deployment: %v", side, line)
		}
		if line[obs.KeyTarget] != nil && line[obs.KeyAgent] == nil {
			t.Errorf("the %s logs a target without its agent: %v", side, line)
		}
	}
}
