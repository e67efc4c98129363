package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// shortLease is far below the default of 30 s, and noticed is the time limit for a loss to be visible: the
// lease, and some more for a busy machine.
const (
	shortLease = 2 * time.Second
	noticed    = shortLease + 5*time.Second
)

// awaitLost waits until the server shows an agent as disconnected, and returns it.
func (s *testServer) awaitLost(tb testing.TB, name string, since time.Time) apiv1.Agent {
	tb.Helper()
	var v apiv1.Agent
	testkit.Eventually(tb, patience, func(ctx context.Context) (err error) {
		if v, err = s.agent(ctx, name); err == nil && v.Connected {
			err = fmt.Errorf("agent %q is still connected", name)
		}
		return err
	})
	if took := time.Since(since); took > noticed {
		tb.Errorf("the loss of agent %q showed after %v, with a lease of %v", name, took, shortLease)
	}
	return v
}

// covers: C10
func TestServerListsItsAgents(t *testing.T) {
	t.Parallel()
	cluster, s := testkit.SharedCluster(t), startServer(t, "--lease="+shortLease.String())
	if out, err := s.kedge(t, "get", "agents"); err != nil || strings.Contains(out, "listed") {
		t.Errorf("kedge get agents of an empty server: %v\n%s", err, out)
	}
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "listed"})
	if out, err := s.kedge(t, "get", "agents"); err != nil || !strings.Contains(out, "Never connected") {
		t.Errorf("kedge get agents before the agent has connected: %v\n%s", err, out)
	}
	before := time.Now()
	a.run(t)
	a.awaitConnected(t, s)
	v, err := s.agent(t.Context(), "listed")
	if err != nil || len(v.Connections) != 1 {
		t.Fatalf("the agent has %d connections, %v", len(v.Connections), err)
	}
	kube := serverVersion(t, cluster)
	uid := cluster.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	c := v.Connections[0]
	if c.Replica != podName(t, a) || c.KubeVersion != kube || c.ClusterUID != uid || c.Version == "" || !c.Connected || c.RemoteAddr == "" {
		t.Errorf("the connection is %+v, want replica %s, Kubernetes %s, cluster %s", c, podName(t, a), kube, uid)
	}
	if c.ConnectedAt.Before(before.Add(-time.Second)) || c.ConnectedAt.After(time.Now()) || v.LastSeenAt.Before(c.ConnectedAt) {
		t.Errorf("connected at %v and last seen at %v, started at %v", c.ConnectedAt, v.LastSeenAt, before)
	}
	if len(v.Warnings) != 0 {
		t.Errorf("a well agent has warnings: %+v", v.Warnings)
	}
	out, err := s.kedge(t, "get", "agents", "-o", "wide")
	for _, want := range []string{"listed", "Connected", c.Replica, c.Version, kube, uid[:8], c.RemoteAddr} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("kedge get agents does not show %q (%v):\n%s", want, err, out)
		}
	}
	// Heartbeats alone keep it connected beyond its lease.
	s.staysConnected(t, "listed", time.Now().Add(2*shortLease))
}

func serverVersion(tb testing.TB, c *testkit.Cluster) string {
	tb.Helper()
	_, rest, _ := strings.Cut(c.Kubectl(tb, "get", "--raw", "/version"), `"gitVersion": "`)
	version, _, _ := strings.Cut(rest, `"`)
	return version
}

// podName returns the name of the replica in the manifest.
func podName(tb testing.TB, a *testAgent) string {
	tb.Helper()
	for _, v := range a.pod.Env {
		if name, ok := strings.CutPrefix(v, "POD_NAME="); ok {
			return name
		}
	}
	tb.Fatal("the manifest gives the agent no POD_NAME")
	return ""
}

// staysConnected fails the test if the agent loses its connection, or has another one, before the end.
func (s *testServer) staysConnected(tb testing.TB, name string, end time.Time) {
	tb.Helper()
	first, err := s.agent(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		v, err := s.agent(ctx, name)
		if err != nil {
			return err
		}
		if !v.Connected || !v.Connections[0].ConnectedAt.Equal(first.Connections[0].ConnectedAt) {
			tb.Fatalf("the connection was lost: %+v", v)
		}
		if time.Now().Before(end) {
			return fmt.Errorf("well so far")
		}
		return nil
	})
}

// covers: C10, D7
func TestLostAgentReadsStaleEverywhere(t *testing.T) {
	t.Parallel()
	losses := []struct {
		name, reason string
		lose         func(*testAgent)
		back         func(testing.TB, *testAgent)
	}{
		{
			name: "killed", reason: "kill -9 closes its connection without a message",
			lose: func(a *testAgent) { a.Kill() },
			back: func(tb testing.TB, a *testAgent) { tb.Helper(); a.run(tb) },
		},
		{
			name: "silent", reason: "a stopped process is like a cut cable: the connection stays open",
			lose: func(a *testAgent) { a.Signal(syscall.SIGSTOP) },
			back: func(_ testing.TB, a *testAgent) { a.Signal(syscall.SIGCONT) },
		},
	}
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			cluster, s, repo := testkit.SharedCluster(t), startServer(t, "--lease="+shortLease.String()), newRepo(t)
			ns := cluster.Namespace(t)
			a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "lost-" + loss.name})
			t.Cleanup(func() { a.Signal(syscall.SIGCONT) }) // else it could not be stopped
			commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "seen", "one")})
			s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}})
			s.awaitDeployment(t, "app", healthyAt(commit, 1))

			at := time.Now()
			loss.lose(a)
			v := s.awaitLost(t, a.name, at)
			if v.Connections[0].Connected || v.LastSeenAt.After(time.Now()) || v.LastSeenAt.Before(at.Add(-noticed)) {
				t.Errorf("%s: the lost agent reads %+v", loss.reason, v)
			}
			s.checkStale(t, "app", a.name)

			loss.back(t, a)
			a.awaitConnected(t, s)
			s.awaitDeployment(t, "app", healthyAt(commit, 1))
			if out, err := s.kedge(t, "status", "app"); err != nil || strings.Contains(out, "Stale") {
				t.Errorf("kedge status after the agent is back: %v\n%s", err, out)
			}
		})
	}
}

// A server that crashes together with its agents must not show them as connected after its restart.
//
// covers: D7
func TestAgentLostWhileTheServerWasDownReadsStale(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "lost-with-server"})
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "seen", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	s.Kill()
	a.Kill()
	s.restart(t)
	s.checkStale(t, "app", a.name)
	a.run(t)
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
}

// checkStale checks a deployment whose only agent is lost, in every place that shows it.
func (s *testServer) checkStale(tb testing.TB, name, agent string) {
	tb.Helper()
	d, err := s.deployment(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	target := d.Targets[0]
	if d.Health != "Stale" || target.Health != "Stale" || target.StaleSince.IsZero() || target.AsOf.IsZero() || target.StaleSince.Before(target.AsOf.Add(-time.Minute)) {
		tb.Errorf("the deployment of a lost agent reads %+v", d)
	}
	var list apiv1.List[apiv1.Deployment]
	s.call(tb, "GET", tenantPath+"/deployments", nil, &list)
	if len(list.Items) != 1 || list.Items[0].Health != "Stale" || list.Items[0].Counts.StaleSince.IsZero() {
		tb.Errorf("the listing of the deployment of a lost agent reads %+v", list.Items)
	}
	const since = "Stale ("
	for _, args := range [][]string{{"status", name}, {"get", "deployments"}} {
		out, err := s.kedge(tb, args...)
		out = strings.ReplaceAll(out, "was Current", "")
		if err != nil || !strings.Contains(out, since) || strings.Contains(out, "Current") || strings.Contains(out, "Healthy") {
			tb.Errorf("kedge %s shows, without %q or with a health that is not known (%v):\n%s", strings.Join(args, " "), since, err, out)
		}
		for _, word := range strings.Fields(strings.ReplaceAll(out, "was Synced", "")) {
			if word == "Synced" {
				tb.Errorf("kedge %s says that a lost agent is Synced now:\n%s", strings.Join(args, " "), out)
			}
		}
	}
	out, err := s.kedge(tb, "get", "agents")
	if err != nil || !strings.Contains(out, agent) || !strings.Contains(out, "Stale (") || strings.Contains(out, "Connected  ") {
		tb.Errorf("kedge get agents does not show that the agent is lost (%v):\n%s", err, out)
	}
}

// covers: C10
func TestVersionSkewIsWarnedOf(t *testing.T) {
	t.Parallel()
	cluster, s := testkit.SharedCluster(t), startServer(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "skewed"})
	pod, err := newSite(t, cluster).Pod(t.Context(), a.name, buildAgent(t, "v0.0.1-old"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a.pod = pod
	a.run(t)
	a.awaitConnected(t, s)
	v, err := s.agent(t.Context(), a.name)
	if err != nil || len(v.Warnings) != 1 || v.Warnings[0].Reason != string(fleet.ReasonVersionSkew) || v.Connections[0].Version != "v0.0.1-old" {
		t.Errorf("an agent of another version has the warnings %+v and connections %+v, %v", v.Warnings, v.Connections, err)
	}
	var who apiv1.Whoami
	s.call(t, "GET", "/whoami", nil, &who)
	if len(v.Warnings) == 1 && !strings.Contains(v.Warnings[0].Message, who.ServerVersion) {
		t.Errorf("the warning %q does not name the server's version %s", v.Warnings[0].Message, who.ServerVersion)
	}
	if out, err := s.kedge(t, "get", "agents"); err != nil || !strings.Contains(out, "Warning: agent skewed: ") {
		t.Errorf("kedge get agents does not warn (%v):\n%s", err, out)
	}
}

// buildAgent builds a kedge-agent with another version.
func buildAgent(tb testing.TB, version string) string {
	tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	program := filepath.Join(tb.TempDir(), "kedge-agent")
	cmd := exec.Command("go", "build", "-ldflags", "-X github.com/kedge-dev/kedge/internal/version.release="+version, "-o", program, "./cmd/kedge-agent")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building an agent of version %s: %v\n%s", version, err, out)
	}
	return program
}
