package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// trouble is something between an agent and its server that a person has to mend.
type trouble struct {
	name, reason string
	server       []string
	// cause creates the trouble and returns its fix.
	cause func(testing.TB, *testServer, *testAgent) (mend func())
	kind  string // of the agent's metric
	hints []string
}

func troubles() []trouble {
	return []trouble{
		{
			name: "wrong-token", reason: "a token that the server does not know, or no longer",
			cause: func(tb testing.TB, _ *testServer, a *testAgent) func() {
				tb.Helper()
				return a.swapToken(tb, "kedge-agent-"+strings.Repeat("x", 40))
			},
			kind: "token", hints: []string{"refused the token", "enroll"},
		},
		{
			name: "empty-token", reason: "a Secret that is filled later",
			cause: func(tb testing.TB, _ *testServer, a *testAgent) func() {
				tb.Helper()
				return a.swapToken(tb, "\n")
			},
			kind: "token", hints: []string{"is empty"},
		},
		{
			name: "wrong-ca", reason: "the server's certificate is not signed by the CA that the agent was given",
			server: []string{"--tls-host=localhost"},
			cause: func(tb testing.TB, _ *testServer, a *testAgent) func() {
				tb.Helper()
				return swap(tb, a.flag(tb, "ca-cert-file"), newAuthority(tb).pem)
			},
			kind: "tls", hints: []string{"not signed by the CA"},
		},
		{
			name: "unreachable", reason: "nothing listens there",
			cause: func(tb testing.TB, s *testServer, _ *testAgent) func() {
				tb.Helper()
				if err := s.Stop(); err != nil {
					tb.Error(err)
				}
				return func() { s.restart(tb) }
			},
			kind: "unreachable", hints: []string{"cannot be reached", "refused"},
		},
	}
}

// swap replaces a file and returns how to put it back.
func swap(tb testing.TB, path, content string) func() {
	tb.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	overwrite(tb, path, content)
	return func() { overwrite(tb, path, string(before)) }
}

// swapToken replaces the token in the Secret of the agent, and in the mounted file.
func (a *testAgent) swapToken(tb testing.TB, token string) func() {
	tb.Helper()
	file := a.flag(tb, "token-file")
	before, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	set := func(text string) {
		a.setSecret(tb, text)
		overwrite(tb, file, text)
	}
	set(token)
	return func() { set(string(before)) }
}

// setSecret writes a token into the Secret that the agent's is mounted from.
func (a *testAgent) setSecret(tb testing.TB, token string) {
	tb.Helper()
	patch := fmt.Sprintf(`{"stringData":{"token":%q}}`, token)
	a.cluster.Kubectl(tb, "-n", "kedge-agent-"+a.name, "patch", "secret", a.flag(tb, "token-secret"), "--type=merge", "-p", patch)
}

// covers: C11
func TestAgentSaysWhyItCannotConnectAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range troubles() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster, s, repo := testkit.SharedCluster(t), startServer(t, c.server...), newRepo(t)
			ns := cluster.Namespace(t)
			a := install(t, s, cluster, apiv1.EnrollAgent{Name: "trouble-" + c.name})
			mend := c.cause(t, s, a)
			a.run(t)
			a.checkTrouble(t, c)
			if n := len(a.writes(t)); n != 0 {
				t.Errorf("%s: the agent has changed the cluster %d times", c.reason, n)
			}

			mend()
			a.awaitConnected(t, s)
			// The control of the count above: writes of the agent are found.
			commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "mended", "one")})
			s.deploy(t, apiv1.CreateDeployment{Name: "mended", Source: apiv1.Source{RepoURL: repo.url}})
			s.awaitDeployment(t, "mended", healthyAt(commit, 1))
			if len(a.writes(t)) == 0 {
				t.Error("the audit log does not show what the agent has written")
			}
			if code, body, err := fetch(t.Context(), http.DefaultClient, a.health(t)+"/readyz"); code != http.StatusOK || err != nil {
				t.Errorf("/readyz after the trouble was mended: %d %q, %v", code, body, err)
			}
		})
	}
}

// writes are the requests by which an agent wanted to change its cluster, without the Lease that its
// replicas choose a leader by.
func (a *testAgent) writes(tb testing.TB) []testkit.Request {
	tb.Helper()
	var out []testkit.Request
	for _, r := range a.cluster.Requests(tb) {
		if r.User == "system:serviceaccount:kedge-agent-"+a.name+":kedge-agent" && r.Write() && r.Resource != "leases" {
			out = append(out, r)
		}
	}
	return out
}

// checkTrouble waits for several attempts and checks the messages of the agent.
func (a *testAgent) checkTrouble(tb testing.TB, c trouble) {
	tb.Helper()
	const attempts = 5
	health := a.health(tb)
	series := fmt.Sprintf("kedge_agent_connection_problems_total{kind=%q}", c.kind)
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		_, page, err := fetch(ctx, http.DefaultClient, health+"/metrics")
		if err != nil {
			return err
		}
		n, err := sample(page, series)
		if err == nil && n < attempts {
			err = fmt.Errorf("%s is %v\n%s", series, n, a.Log())
		}
		return err
	})
	code, body, err := fetch(tb.Context(), http.DefaultClient, health+"/readyz")
	if err != nil || code != http.StatusServiceUnavailable {
		tb.Errorf("%s: /readyz answers %d, %v", c.reason, code, err)
	}
	for _, hint := range c.hints {
		if !strings.Contains(body, hint) || !strings.Contains(a.Log(), hint) {
			tb.Errorf("%s: /readyz (%q) or the log does not say %q:\n%s", c.reason, body, hint, a.Log())
		}
	}
	if code, _, err := fetch(tb.Context(), http.DefaultClient, health+"/livez"); err != nil || code != http.StatusOK {
		tb.Errorf("%s: /livez answers %d, %v: a restart would not help", c.reason, code, err)
	}
	if err := checkPauses(logLines(tb, a.Process)); err != nil {
		tb.Errorf("%s: %v\n%s", c.reason, err, a.Log())
	}
	select {
	case <-a.Done():
		tb.Fatalf("%s: the agent has ended", c.reason)
	default:
	}
}

// checkPauses checks the pauses that the agent logs: it keeps them, and they are not all near zero. Each is a
// random part of a growing window, so more cannot be checked.
func checkPauses(lines []map[string]any) error {
	var longest time.Duration
	var until time.Time
	for _, line := range lines {
		announced, ok := line["retryIn"].(string)
		if !ok {
			continue
		}
		wait, err := time.ParseDuration(announced)
		if err != nil {
			return err
		}
		said, _ := line["time"].(string)
		at, err := time.Parse(time.RFC3339Nano, said)
		if err != nil {
			return err
		}
		if at.Before(until) {
			return fmt.Errorf("it tried again at %v and not at %v, as it had announced", at, until)
		}
		longest, until = max(longest, wait), at.Add(wait)
	}
	if longest < 100*time.Millisecond { // of five, once in a hundred thousand
		return fmt.Errorf("its longest pause is %v", longest)
	}
	return nil
}

// covers: C11 (clocks)
func TestAgentTellsAWrongClockFromAnOldCertificate(t *testing.T) {
	t.Parallel()
	cluster, authority, dir := testkit.SharedCluster(t), newAuthority(t), t.TempDir()
	certFile, keyFile, caFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
	write := func(from, to time.Duration) (cert string) {
		cert, key := authority.issue(t, "127.0.0.1", from, to)
		overwrite(t, keyFile, key)
		overwrite(t, certFile, cert)
		return cert
	}
	write(-time.Hour, time.Hour)
	overwrite(t, caFile, authority.pem)
	s := startServer(t, "--tls-cert-file="+certFile, "--tls-key-file="+keyFile)
	serve := func(from, to time.Duration) { awaitCertificate(t, hostPort(s.URL), write(from, to)) }
	s.HTTP = authority.client(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "trouble-clock"})
	a.pod.Args = append(a.pod.Args, "--ca-cert-file="+caFile) // the server does not know the issuer of its certificate

	serve(time.Hour, 2*time.Hour)
	a.run(t)
	a.checkTrouble(t, trouble{reason: "a certificate of the future", kind: "clock", hints: []string{"not valid before", "check both clocks"}})
	serve(-2*time.Hour, -time.Hour)
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		_, body, err := fetch(ctx, http.DefaultClient, a.health(t)+"/readyz")
		if err == nil && !strings.Contains(body, "certificate expired at") {
			err = fmt.Errorf("/readyz says %q", body)
		}
		return err
	})
	serve(-time.Hour, time.Hour)
	a.awaitConnected(t, s)
}

// covers: C11 (exit codes)
func TestAgentEndsWithCodeTwoWhenItIsSetUpWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, kubeconfig := filepath.Join(dir, "token"), filepath.Join(dir, "kubeconfig")
	overwrite(t, token, "kedge-agent-x")
	overwrite(t, kubeconfig, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
	right := map[string]string{"server-address": "grpc://127.0.0.1:1", "token-file": token, "kubeconfig": kubeconfig, "listen": "127.0.0.1:0"}
	cases := []struct {
		reason      string
		flag, value string // one invalid setting; no value omits the flag
		want        string
	}{
		{"no address", "server-address", "", "--server-address"},
		{"an address that agents do not speak", "server-address", "https://kedge.example.com", "grpcs://"},
		{"a token in the address", "server-address", "grpcs://u:secret@kedge.example.com", "--token-file"},
		{"no token file", "token-file", "", "--token-file"},
		{"a token file that is not there", "token-file", dir + "/nowhere", "nowhere"},
		{"a CA file that is not there", "ca-cert-file", dir + "/nowhere", "nowhere"},
		{"a kubeconfig that is not there", "kubeconfig", dir + "/nowhere", "nowhere"},
		{"a flag that is not known", "no-such-flag", "x", "no-such-flag"},
		{"a log format that is not known", "log-format", "xml", "xml"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var args []string
			for name, value := range right {
				if name != c.flag {
					args = append(args, "--"+name+"="+value)
				}
			}
			if c.value != "" {
				args = append(args, "--"+c.flag+"="+c.value)
			}
			code, log, err := runToEnd(t, binary(t, "kedge-agent"), args...)
			if err != nil || code != 2 || !strings.Contains(log, c.want) {
				t.Errorf("%s ends with %d (%v), want 2 and %q:\n%s", c.reason, code, err, c.want, log)
			}
			if strings.Contains(log, "secret") {
				t.Errorf("a password is in the log:\n%s", log)
			}
		})
	}
}

var errStillRunning = errors.New("it goes on instead of ending")

func runToEnd(tb testing.TB, program string, args ...string) (code int, log string, err error) {
	tb.Helper()
	p, err := rig.Start(filepath.Base(program), command(program, args...), nil)
	if err != nil {
		return 0, "", err
	}
	endWithTest(tb, p)
	select {
	case <-p.Done():
		return p.ExitCode(), p.Log(), nil
	case <-time.After(patience):
		return 0, p.Log(), errStillRunning
	}
}
