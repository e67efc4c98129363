package cli_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// console is an output that a test can wait on.
type console struct {
	mu     sync.Mutex
	buffer bytes.Buffer
	wrote  chan struct{}
}

func newConsole() *console { return &console{wrote: make(chan struct{}, 1)} }

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return c.buffer.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer.String()
}

func (c *console) waitFor(t *testing.T, text string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !strings.Contains(c.String(), text) {
		select {
		case <-c.wrote:
		case <-limit:
			t.Fatalf("%q did not come, only:\n%s", text, c)
		}
	}
}

// start runs the program in the background and returns how to wait for its exit code.
func start(t *testing.T, out *console, env map[string]string, args string) (wait func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- runTo(ctx, out, out, env, "", strings.Fields(args)...) }()
	t.Cleanup(cancel)
	return func() int {
		select {
		case c := <-code:
			return c
		case <-time.After(20 * time.Second):
			t.Fatalf("still running:\n%s", out)
			return -1
		}
	}
}

func TestStatusWatchFollowsUntilItHasArrived(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	syncing := target("prod", "Syncing", "InProgress")
	s.deployments = []apiv1.Deployment{deployment("web", "Syncing", "InProgress", syncing)}
	out := newConsole()
	wait := start(t, out, home(t, url), "status web --watch --commit beef")
	feed := <-s.streams
	out.waitFor(t, "prod: Syncing, InProgress at c0ffee012345")

	say := func(seq int64, message string, change func(*apiv1.Deployment)) {
		there := target("prod", "Synced", "Current")
		there.Message = message
		d := deployment("web", "Synced", "Current", there)
		d.Commit = "beef0123456789"
		change(&d)
		s.set(func(s *server) { s.deployments = []apiv1.Deployment{d} })
		feed <- apiv1.Change{Seq: seq, Kind: "status", DeploymentID: "dep-web"}
		out.waitFor(t, message)
	}
	say(1, "older generation", func(d *apiv1.Deployment) { d.Targets[0].ObservedGeneration = 3 })
	say(2, "another commit", func(d *apiv1.Deployment) { d.Commit = "c0ffee" })
	say(3, "one of two", func(d *apiv1.Deployment) { d.Targets = append(d.Targets, staleTarget()) })
	say(4, "all there", func(*apiv1.Deployment) {})
	if code := wait(); code != 0 || !strings.Contains(out.String(), "is synced and healthy on 1 target at commit beef01234567") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestStatusWatchForgivesAFailureThatPasses(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	out := newConsole()
	wait := start(t, out, home(t, url), "status failing --watch --fail-after 1h")
	feed := <-s.streams
	out.waitFor(t, "prod: Failed")
	s.set(func(s *server) {
		s.deployments = []apiv1.Deployment{deployment("failing", "Synced", "Current", target("prod", "Synced", "Current"))}
	})
	feed <- apiv1.Change{Seq: 1, Kind: "status", DeploymentID: "dep-failing"}
	if code := wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestStatusWatchTimesOut(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	for reason, name := range map[string]string{"a lost agent has not arrived": "away", "no target at all": "nowhere"} {
		got := run(t, home(t, url), "", "status", name, "--watch", "--timeout", "300ms")
		if got.code != 4 || !strings.Contains(got.err, "is not synced and healthy on all targets after 300ms") {
			t.Errorf("%s: %s", reason, got)
		}
	}
}

func TestGetWatchPrintsWhatChanges(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	out := newConsole()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	env := home(t, url)
	go func() { code <- runTo(ctx, out, out, env, "", "get", "agents", "--watch") }()
	feed := <-s.streams
	out.waitFor(t, "Never connected")
	s.set(func(s *server) {
		s.agents[1].Connections = []apiv1.Connection{{Replica: "pod-n", Connected: true, ConnectedAt: born}}
	})
	feed <- apiv1.Change{Seq: 1, Kind: "status"} // not about agents
	feed <- apiv1.Change{Seq: 2, Kind: "connection"}
	out.waitFor(t, "pod-n")
	s.set(func(s *server) { s.agents = s.agents[1:] })
	feed <- apiv1.Change{Seq: 3, Kind: "agent"}
	out.waitFor(t, "lost   Deleted")
	var column []int
	for _, line := range strings.Split(out.String(), "\n") {
		if i := strings.Index(line, "cluster  "); i >= 0 {
			column = append(column, i)
		}
	}
	if len(column) != 3 || column[0] != column[2] {
		t.Errorf("the rows of an update are not below those before, at %v:\n%s", column, out)
	}
	cancel()
	if got := <-code; got != 130 {
		t.Errorf("exit code %d after an interrupt, want 130", got)
	}
	if n := strings.Count(out.String(), "NAME"); n != 1 {
		t.Errorf("%d headers:\n%s", n, out)
	}
	if n := strings.Count(out.String(), "pod-x"); n != 1 {
		t.Errorf("an agent that did not change was printed %d times:\n%s", n, out)
	}
}

func TestDeployDeleteWaitsUntilItIsGone(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	out := newConsole()
	wait := start(t, out, home(t, url), "deploy delete web --wait --yes")
	feed := <-s.streams
	out.waitFor(t, "is being deleted")
	s.set(func(s *server) { s.deployments = s.deployments[1:] })
	feed <- apiv1.Change{Seq: 1, Kind: "deployment", ID: "dep-web", DeploymentID: "dep-web"}
	if code := wait(); code != 0 || !strings.Contains(out.String(), "1 object was kept: Namespace web\nDeployment \"web\" is gone.") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	got := run(t, home(t, url), "", "deploy", "delete", "failing", "--yes", "--wait", "--timeout", "300ms")
	if got.code != 4 || !strings.Contains(got.err, "not gone everywhere after 300ms") {
		t.Errorf("one that stays: %s", got)
	}
}

func TestWatchedCommitThatTouchesNothingIsUpToDate(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	s.set(func(s *server) { s.deployments[0].EvaluatedCommit = "dead00112233445566" })
	for commit, want := range map[string]string{
		"dead0011": "Commit dead00112233 does not change it.\n",
		"c0ffee":   "Deployment \"web\" is synced and healthy on 1 target at commit c0ffee012345.\n",
	} {
		got := run(t, env, "", "status", "web", "--watch", "--timeout", "20s", "--commit", commit)
		if got.code != 0 || !strings.HasSuffix(got.out, want) {
			t.Errorf("--commit %s: %s", commit, got)
		}
	}
	if got := run(t, env, "", "status", "web", "--watch", "--timeout", "200ms", "--commit", "beef"); got.code != 4 {
		t.Errorf("a commit that nobody knows: %s", got)
	}
}
