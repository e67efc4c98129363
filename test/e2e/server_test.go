package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// patience is the time limit of everything: at least ten times the time on an idle machine.
const patience = 60 * time.Second

// testServer is a running kedge-server.
type testServer struct {
	*rig.Server
	dir  string
	args []string
	wrap func(*exec.Cmd) *exec.Cmd
}

// startServer starts a server with a new database.
func startServer(tb testing.TB, args ...string) *testServer {
	tb.Helper()
	s := &testServer{dir: tb.TempDir(), args: args}
	s.startAt(tb, "127.0.0.1:0")
	return s
}

// restart starts the server again, on the same port and data.
func (s *testServer) restart(tb testing.TB) {
	tb.Helper()
	_, addr, _ := strings.Cut(s.URL, "://")
	s.startAt(tb, addr)
}

func (s *testServer) startAt(tb testing.TB, addr string) {
	tb.Helper()
	program := binary(tb, "kedge-server") // the first call builds them, which does not count
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	srv, err := rig.StartServer(ctx, rig.ServerConfig{
		Binary: program, Listen: addr, DataDir: s.dir, Args: s.args, Wrap: s.wrap,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if s.Server != nil {
		srv.Token = s.Token // only the first start prints it
	}
	s.Server = srv
	endWithTest(tb, srv.Process)
}

// endWithTest stops a process at the end of a test and shows its log when the test has failed.
func endWithTest(tb testing.TB, p *rig.Process) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := p.Stop(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", p.Name(), p.Log())
		}
	})
}

// logLines decodes a JSON log.
func logLines(tb testing.TB, p *rig.Process) []map[string]any {
	tb.Helper()
	var out []map[string]any
	for line := range strings.Lines(p.Log()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			tb.Errorf("%s logs a line that is not JSON: %s", p.Name(), line)
			continue
		}
		out = append(out, fields)
	}
	return out
}

// call sends a request as the admin and decodes the answer into out unless that is nil.
func (s *testServer) call(tb testing.TB, method, path string, body, out any) {
	tb.Helper()
	if err := s.Call(tb.Context(), method, path, body, out); err != nil {
		tb.Fatal(err)
	}
}

const tenantPath = rig.TenantPath

// deploy creates a deployment.
func (s *testServer) deploy(tb testing.TB, req apiv1.CreateDeployment) {
	tb.Helper()
	s.call(tb, http.MethodPost, tenantPath+"/deployments", req, nil)
}

// unlimited is the policy of a deployment whose commits may delete any number of objects.
func unlimited() apiv1.NewPolicy {
	return apiv1.NewPolicy{PruneLimit: &apiv1.PruneLimit{Objects: 10_000, Percent: 100}}
}

func (s *testServer) deployment(ctx context.Context, name string) (apiv1.Deployment, error) {
	var d apiv1.Deployment
	err := s.Call(ctx, http.MethodGet, tenantPath+"/deployments/"+name, nil, &d)
	return d, err
}

// awaitDeployment waits until check accepts a deployment, and returns it.
func (s *testServer) awaitDeployment(tb testing.TB, name string, check func(apiv1.Deployment) error) apiv1.Deployment {
	tb.Helper()
	var d apiv1.Deployment
	testkit.Eventually(tb, patience, func(ctx context.Context) (err error) {
		if d, err = s.deployment(ctx, name); err != nil {
			return err
		}
		if err := check(d); err != nil {
			return fmt.Errorf("%w; sync %s, health %s, message %q, targets %+v", err, d.Sync, d.Health, d.Message, d.Targets)
		}
		return nil
	})
	return d
}

// healthyAt is content when every one of n targets is Synced and Current at a commit.
func healthyAt(commit string, n int) func(apiv1.Deployment) error {
	return func(d apiv1.Deployment) error {
		if d.Commit != commit {
			return fmt.Errorf("commit is %q, not %q", d.Commit, commit)
		}
		if d.Sync != "Synced" || d.Health != "Current" || len(d.Targets) != n {
			return fmt.Errorf("not healthy on %d targets", n)
		}
		return nil
	}
}

func (s *testServer) events(ctx context.Context, query string) ([]apiv1.Event, error) {
	var list apiv1.List[apiv1.Event]
	err := s.Call(ctx, http.MethodGet, tenantPath+"/events?limit=500&"+query, nil, &list)
	return list.Items, err
}

// awaitEvent waits for an event with that reason whose text contains a word.
func (s *testServer) awaitEvent(tb testing.TB, reason, contains string) apiv1.Event {
	tb.Helper()
	var found apiv1.Event
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		events, err := s.events(ctx, "")
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Reason == reason && strings.Contains(e.Object+" "+e.Message, contains) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", reason, contains)
	})
	return found
}

// kedge runs the CLI as the admin.
func (s *testServer) kedge(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	tokenFile := filepath.Join(s.dir, "admin-token")
	if err := os.WriteFile(tokenFile, []byte(s.Token), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(binary(tb, "kedge"), append(args, "--server", s.URL, "--token-file", tokenFile)...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+tb.TempDir(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// exitCode returns the exit code of a program.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}
