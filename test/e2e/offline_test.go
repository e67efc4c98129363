package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// awaitKept waits until the cluster stores what an agent needs to continue with n targets without a server.
func (a *testAgent) awaitKept(tb testing.TB, n int) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		out, err := a.cluster.TryKubectl(tb, "-n", "kedge-agent-"+a.name, "get", "secrets", "-l", "kedge.dev/offline", "-o", "jsonpath={.items[*].data}")
		if err == nil && strings.Count(out, `"target.`) != n {
			err = fmt.Errorf("%d targets are kept, not %d", strings.Count(out, `"target.`), n)
		}
		return err
	})
}

// awaitLog waits until the agent has logged a text n times.
func (a *testAgent) awaitLog(tb testing.TB, text string, n int) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if got := strings.Count(a.Log(), text); got < n {
			return fmt.Errorf("%q was logged %d times, not %d", text, got, n)
		}
		return nil
	})
}

// covers: D4, C9
func TestAgentHealsDriftAfterARestartWithoutItsServer(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "offline", Namespaces: []string{ns}})
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: kept, namespace: " + ns + "}\nstringData: {value: one}\n"
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "one"), "gone.yaml": configMap(ns, "gone", "one"), "secret.yaml": secret})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	a.awaitKept(t, 1)
	own := func() string {
		return snapshot(t, cluster, "secrets,configmaps", "-n", "kedge-agent-offline", "--field-selector", "metadata.name!=kube-root-ca.crt")
	}
	before, writes := own(), len(a.writes(t))

	a.Kill()
	s.Kill()
	repo.server.SetDown(true)
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "kept", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
	cluster.Kubectl(t, "-n", ns, "delete", "configmap", "gone")
	a.run(t)
	shows(t, cluster, "one", "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.data.value}")
	shows(t, cluster, "one", "-n", ns, "get", "configmap", "gone", "-o", "jsonpath={.data.value}")
	cluster.Kubectl(t, "-n", ns, "delete", "configmap", "gone") // and while it runs
	shows(t, cluster, "one", "-n", ns, "get", "configmap", "gone", "-o", "jsonpath={.data.value}")
	if gone := deletions(a.writes(t)[writes:]); len(gone) > 0 {
		t.Errorf("without a server the agent deleted %+v", gone)
	}

	repo.server.SetDown(false)
	s.restart(t)
	a.awaitConnected(t, s)
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	if strings.Contains(a.Log(), "desired state received") {
		t.Error("the server has sent a cached state again")
	}
	if len(kept(before)) == 0 {
		t.Fatalf("what the agent keeps is %q", before)
	}
	// Only the inventory of recreated objects has changed: the cache was written once.
	if diff := cmp.Diff(kept(before), kept(own())); diff != "" {
		t.Errorf("what is kept was written again:\n%s", diff)
	}
}

// kept returns the lines of a snapshot that belong to the offline cache.
func kept(snapshot string) (out []string) {
	for line := range strings.Lines(snapshot) {
		if strings.HasPrefix(line, "Secret/kedge-offline-") {
			out = append(out, line)
		}
	}
	return out
}

// covers: C8, D4
func TestAgentThatWasDeletedOnTheServerManagesNothingAfterARestart(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "dismissed"})
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	a.awaitKept(t, 1)
	before := len(a.writes(t))
	if out, err := s.kedge(t, "agent", "delete", "dismissed"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.awaitLog(t, "refused the token", 3)
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	s.Kill()
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "kept", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
	a.run(t)
	a.awaitLog(t, "nothing is managed until the server accepts it again", 1)
	a.awaitLog(t, "no connection to the server", 4)
	shows(t, cluster, "edited", "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.data.value}")
	for _, r := range a.writes(t)[before:] {
		if r.Namespace == ns {
			t.Errorf("an agent that was deleted on the server sent %+v", r)
		}
	}
}
