package e2e_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// cable is a connection to an API server that can be cut.
type cable struct {
	listener net.Listener
	backend  string

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func newCable(tb testing.TB, backend string) *cable {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &cable{listener: l, backend: backend, open: map[net.Conn]bool{}}
	tb.Cleanup(func() { _ = l.Close(); c.set(true) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go c.carry(conn)
		}
	}()
	return c
}

func (c *cable) carry(near net.Conn) {
	far, err := net.Dial("tcp", c.backend)
	if err != nil {
		_ = near.Close()
		return
	}
	c.mu.Lock()
	c.open[near], c.open[far] = true, true
	cut := c.cut
	c.mu.Unlock()
	if !cut {
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		_, _ = io.Copy(near, far)
	}
	_ = near.Close()
	_ = far.Close()
}

// set cuts the cable, or mends it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		for conn := range c.open {
			_ = conn.Close()
		}
		clear(c.open)
	}
}

// An agent that cannot reach its API server stops leading, reports that to the server, and continues when it
// can again.
//
// covers: D6, D7, O7
func TestAgentGoesOnAfterItsClusterWasAway(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns, dir := cluster.Namespace(t), t.TempDir()
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "cut-off"})
	pod, err := newSite(t, cluster).Pod(t.Context(), a.name, binary(t, "kedge-agent"), dir)
	if err != nil {
		t.Fatal(err)
	}
	a.pod = pod
	backend := strings.TrimPrefix(cluster.RESTConfig().Host, "https://")
	way, file := newCable(t, backend), filepath.Join(dir, "kubeconfig")
	raw, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(raw), backend) {
		t.Fatalf("the kubeconfig does not name %s: %v", backend, err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(raw), backend, way.listener.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	a.run(t)
	a.awaitConnected(t, s)
	p := &pair{server: s, cluster: cluster, name: a.name}
	commit := repo.push(t, map[string]string{"cm.yaml": many(ns, 5, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	a.awaitKept(t, 1)
	before := len(a.writes(t))

	way.set(true)
	p.await(t, "", podName(t, a))
	s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
		if d.Health != "Stale" || d.Targets[0].StaleSince.IsZero() {
			return errors.New("no replica leads, but the deployment is not stale")
		}
		return nil
	})
	if out, err := s.kedge(t, "get", "agents"); err != nil || !strings.Contains(out, "no leader") {
		t.Errorf("kedge get agents does not show that no replica leads (%v):\n%s", err, out)
	}
	cluster.Kubectl(t, "-n", ns, "delete", "configmap", "cm-000")
	way.set(false)
	p.await(t, podName(t, a))
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	holds(t, cluster, ns, 5, "1")
	if gone := deletions(a.writes(t)[before:]); len(gone) > 0 {
		t.Errorf("it deleted %+v", gone)
	}
}
