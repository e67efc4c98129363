package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// killedFleet is an agent that is killed at its requests, and a deployment of which every commit changes,
// creates, removes, and keeps an object.
type killedFleet struct {
	cluster *testkit.Cluster
	server  *testServer
	agent   *testAgent
	proxy   *apiproxy.Proxy
	repo    *testRepo
	ns      string
	rounds  int
}

func newKilledFleet(t *testing.T) *killedFleet {
	t.Helper()
	f := &killedFleet{cluster: testkit.SharedCluster(t), server: startServer(t), repo: newRepo(t)}
	f.ns = f.cluster.Namespace(t)
	f.cluster.Apply(t, configMap(f.ns, "cm-foreign", "foreign"))
	f.agent = install(t, f.server, f.cluster, apiv1.EnrollAgent{Name: "killed"})
	f.proxy = f.agent.through(t)
	f.agent.run(t)
	f.agent.awaitConnected(t, f.server)
	commit := f.commit(t)
	f.server.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: f.repo.url, Path: "app"}, Policy: unlimited()})
	f.server.awaitDeployment(t, "app", healthyAt(commit, 1))
	f.repo.webhooks(t, f.server)
	return f
}

// commit pushes the next round.
func (f *killedFleet) commit(t *testing.T) string {
	t.Helper()
	f.rounds++
	return f.repo.push(t, map[string]string{
		"app/stays.yaml":                           configMap(f.ns, "cm-stays", "1"),
		"app/changes.yaml":                         configMap(f.ns, "cm-changes", fmt.Sprint(f.rounds)),
		fmt.Sprintf("app/new-%d.yaml", f.rounds):   configMap(f.ns, f.newest(), "new"),
		fmt.Sprintf("app/new-%d.yaml", f.rounds-1): gitserver.Deleted,
	})
}

func (f *killedFleet) newest() string { return fmt.Sprintf("cm-new-%d", f.rounds) }

// arm kills the agent at its n-th write from now on: just before it is executed, or just after and before the
// agent has the response. The channel is closed when the agent is dead.
func (f *killedFleet) arm(n int, after bool) (dead <-chan struct{}) {
	killed, count := make(chan struct{}), 0
	f.proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") || r.URL.Query().Has("dryRun") {
			return nil
		}
		if count++; count < n {
			return nil
		}
		if count == n {
			process := f.agent.Process
			go func() { process.Kill(); close(killed) }()
		}
		if after && count == n {
			return &apiproxy.Fault{HoldAnswer: killed}
		}
		return &apiproxy.Fault{Hold: make(chan struct{})} // never: its sender is dead
	})
	return killed
}

// round pushes a commit whose sync is interrupted at a write, and then a newer one while the agent is dead if
// the write was executed; false if the sync has no such write.
func (f *killedFleet) round(t *testing.T, n int, after bool) bool {
	t.Helper()
	dead := f.arm(n, after)
	commit := f.commit(t)
	reached := false
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		select {
		case <-dead:
			reached = true
			return nil
		default:
		}
		d, err := f.server.deployment(ctx, "app")
		if err != nil {
			return err
		}
		return healthyAt(commit, 1)(d)
	})
	f.proxy.Do(nil)
	if reached && after {
		commit = f.commit(t) // without the object that the interrupted one has created, which must not be forgotten
	}
	if reached {
		f.agent.run(t)
	}
	f.server.awaitDeployment(t, "app", healthyAt(commit, 1))
	return reached
}

// covers: D6, O7
func TestAgentKilledAtEveryWriteOfASync(t *testing.T) {
	t.Parallel()
	f := newKilledFleet(t)
	before := uids(t, f.cluster, f.ns)
	kills := 0
	for _, after := range []bool{false, true} {
		for n := 1; f.round(t, n, after); n++ {
			kills++
			f.check(t, fmt.Sprintf("killed at write %d (after: %t)", n, after), before)
		}
	}
	// At least the inventory, two applied objects, and one deleted object, each before and after.
	if t.Logf("%d kills", kills); kills < 2*5 {
		t.Errorf("the agent was killed %d times, want it at each write of a sync", kills)
	}
	for _, r := range writesTo(t, f.cluster, f.ns) {
		if r.Verb == "delete" && !strings.HasPrefix(r.Name, "cm-new-") {
			t.Errorf("the agent has sent %s %s", r.Verb, r.URI)
		}
	}
	// Nothing was forgotten: deleting the deployment deletes all its objects, and nothing else.
	f.server.call(t, http.MethodDelete, tenantPath+"/deployments/app", nil, nil)
	testkit.Eventually(t, patience, func(context.Context) error {
		left := uids(t, f.cluster, f.ns)
		if len(left) == 1 && left["cm-foreign"] == before["cm-foreign"] {
			return nil
		}
		return fmt.Errorf("what is left is %v", left)
	})
}

// check compares the actual with the expected objects.
func (f *killedFleet) check(t *testing.T, when string, before map[string]string) {
	t.Helper()
	want := map[string]string{"cm-foreign": "foreign", "cm-stays": "1", "cm-changes": fmt.Sprint(f.rounds), f.newest(): "new"}
	testkit.Eventually(t, patience, func(context.Context) error {
		if diff := cmp.Diff(want, values(t, f.cluster, f.ns)); diff != "" {
			return errors.New(when + ": the cluster differs (-want +got):\n" + diff)
		}
		return nil
	})
	after := uids(t, f.cluster, f.ns)
	for _, name := range []string{"cm-foreign", "cm-stays", "cm-changes"} {
		if before[name] != after[name] {
			t.Fatalf("%s: %s was deleted and created again", when, name)
		}
	}
}
