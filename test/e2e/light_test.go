package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// lightFleet is a set of agents without clusters, in this process: the real link, and an engine that treats
// everything as applied. It is for tests without objects in a cluster.
type lightFleet struct {
	sim *agentsim.Fleet
	dir string

	mu    sync.Mutex
	holds map[string]map[fleet.TargetID]fleet.Desired // the last state of each agent
	told  int                                         // number of states that agents got
}

// newLightFleet makes a fleet whose agents connect to host:port in plain text.
func newLightFleet(tb testing.TB, address string) *lightFleet {
	tb.Helper()
	f := &lightFleet{dir: tb.TempDir(), holds: map[string]map[fleet.TargetID]fleet.Desired{}}
	var err error
	f.sim, err = agentsim.New(agentsim.Config{Address: "grpc://" + address, Applied: f.applied})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *lightFleet) applied(a *agentsim.Agent, target fleet.TargetID, d fleet.Desired) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told++
	if f.holds[a.Replica] == nil {
		f.holds[a.Replica] = map[fleet.TargetID]fleet.Desired{}
	}
	f.holds[a.Replica][target] = d
}

// lacking counts the agents that do not have each of these commits.
func (f *lightFleet) lacking(agents []string, commits []string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	lacking := 0
	for _, name := range agents {
		has := map[string]bool{}
		for _, d := range f.holds[name] {
			has[d.Commit] = !d.Detached && !d.Tombstone
		}
		for _, commit := range commits {
			if !has[commit] {
				lacking++
				break
			}
		}
	}
	return lacking
}

// awaitCommits waits until every one of these agents has each of these commits.
func (f *lightFleet) awaitCommits(tb testing.TB, limit time.Duration, agents []string, commits ...string) {
	tb.Helper()
	testkit.Eventually(tb, limit, func(context.Context) error {
		if n := f.lacking(agents, commits); n > 0 {
			return fmt.Errorf("%d of %d agents lack one of %d commits", n, len(agents), len(commits))
		}
		return nil
	})
}

// lightAgent is one of them, running.
type lightAgent struct {
	*agentsim.Agent
	name, token string
	stop        func()
}

// enroll enrolls a light agent in a tenant and runs it.
func (f *lightFleet) enroll(tb testing.TB, d tenantClient, req apiv1.EnrollAgent) *lightAgent {
	tb.Helper()
	made := decode[apiv1.Enrollment](tb, d.want(tb, 201, "POST", "agents", req))
	return f.run(tb, made.Agent.Name, made.Token)
}

// run runs an enrolled agent.
func (f *lightFleet) run(tb testing.TB, name, token string) *lightAgent {
	tb.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		tb.Fatal(err)
	}
	a, err := f.sim.Agent(name, file)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			tb.Errorf("light agent %s: %v", name, err)
		}
	})
	tb.Cleanup(stop)
	return &lightAgent{Agent: a, name: name, token: token, stop: stop}
}

// light starts a fleet of one agent at a server, for tests that need any target.
func light(tb testing.TB, d tenantClient, name string) *lightAgent {
	tb.Helper()
	a := newLightFleet(tb, hostPort(d.URL)).enroll(tb, d, apiv1.EnrollAgent{Name: name})
	a.awaitReady(tb)
	return a
}

func (a *lightAgent) awaitReady(tb testing.TB) {
	tb.Helper()
	testkit.Eventually(tb, patience, a.Ready)
}

// plainManifest is a ConfigMap for agents that apply nothing.
func plainManifest(value string) string { return configMap("default", "page", value) }

// pushTo creates a repository with one manifest at its root and returns it with the commit.
func pushTo(tb testing.TB, value string) (*testRepo, string) {
	tb.Helper()
	repo := newRepo(tb)
	return repo, repo.push(tb, map[string]string{"cm.yaml": plainManifest(value)})
}

// await waits until check accepts a deployment of this tenant, and returns it.
func (d tenantClient) await(tb testing.TB, name string, check func(apiv1.Deployment) error) apiv1.Deployment {
	tb.Helper()
	var v apiv1.Deployment
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		v = apiv1.Deployment{}
		if err := d.Call(ctx, "GET", d.path("deployments/"+name), nil, &v); err != nil {
			return err
		}
		if err := check(v); err != nil {
			return fmt.Errorf("%w; sync %s, health %s, held %q, message %q, counts %+v", err, v.Sync, v.Health, v.Held, v.Message, v.Counts)
		}
		return nil
	})
	return v
}

// says accepts a deployment with this state and a message that contains text.
func says(sync, text string) func(apiv1.Deployment) error {
	return func(d apiv1.Deployment) error {
		if d.Sync != sync || !strings.Contains(d.Message+" "+d.Held.Text(), text) {
			return fmt.Errorf("not %s with %q", sync, text)
		}
		return nil
	}
}
