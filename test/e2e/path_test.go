package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

const webApp = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "nginx:1.29"}]
`

// shows waits until kubectl prints a text.
func shows(tb testing.TB, c *testkit.Cluster, text string, args ...string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		out, err := c.TryKubectl(tb, args...)
		if err != nil || !strings.Contains(out, text) {
			return fmt.Errorf("kubectl %s shows %q, %w", strings.Join(args, " "), out, err)
		}
		return nil
	})
}

// covers: C3, G1, G5, G11, A1, A5, A8, D1
func TestCommitReachesTheClusterAndItsStatusComesBack(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "path"})
	class := "class-" + ns
	first := repo.push(t, map[string]string{
		"app/web.yaml":   fmt.Sprintf(webApp, 2), // names no namespace
		"app/cm.json":    fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"page"},"data":{"value":%q}}`, "one"),
		"app/class.yaml": fmt.Sprintf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata:\n  name: %s\nvalue: 7\n", class),
		"other/cm.yaml":  configMap(ns, "foreign", "x"),
	})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	d := s.awaitDeployment(t, "app", healthyAt(first, 1))
	if got := len(d.Targets[0].Objects); got != 3 {
		t.Fatalf("%d objects are listed, not 3: %+v", got, d.Targets[0].Objects)
	}
	for _, o := range d.Targets[0].Objects {
		if o.Health != "Current" || o.Sync != "Synced" {
			t.Errorf("%s %s is %s/%s", o.Kind, o.Name, o.Sync, o.Health)
		}
	}
	cluster.Kubectl(t, "get", "priorityclass", class)
	repo.webhooks(t, s)

	t.Run("a pushed change arrives", func(t *testing.T) {
		second := repo.push(t, map[string]string{"app/web.yaml": fmt.Sprintf(webApp, 3)})
		s.awaitDeployment(t, "app", healthyAt(second, 1))
		shows(t, cluster, "3", "-n", ns, "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	})
	t.Run("a manually edited managed field is restored, another one is kept", func(t *testing.T) {
		cluster.Kubectl(t, "-n", ns, "annotate", "configmap", "page", "mine=kept")
		cluster.Kubectl(t, "-n", ns, "patch", "configmap", "page", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
		shows(t, cluster, "one", "-n", ns, "get", "configmap", "page", "-o", "jsonpath={.data.value}")
		shows(t, cluster, "kept", "-n", ns, "get", "configmap", "page", "-o", "jsonpath={.metadata.annotations.mine}")
		e := s.awaitEvent(t, "DriftHealed", "page")
		if e.Deployment != "app" || e.Agent != "path" {
			t.Errorf("the event names %q on %q", e.Deployment, e.Agent)
		}
	})
	t.Run("a manually deleted object is recreated", func(t *testing.T) {
		cluster.Kubectl(t, "-n", ns, "delete", "deployment", "web")
		shows(t, cluster, "3", "-n", ns, "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	})
	t.Run("an object removed from Git is pruned, others stay", func(t *testing.T) {
		third := repo.push(t, map[string]string{"app/cm.json": gitserver.Deleted})
		s.awaitDeployment(t, "app", healthyAt(third, 1))
		testkit.Eventually(t, patience, func(context.Context) error {
			if out, err := cluster.TryKubectl(t, "-n", ns, "get", "configmap", "page", "--ignore-not-found", "-o", "name"); err != nil || out != "" {
				return fmt.Errorf("still there: %q, %w", out, err)
			}
			return nil
		})
		cluster.Kubectl(t, "-n", ns, "get", "deployment", "web")
	})
	t.Run("deleting the deployment deletes its objects", func(t *testing.T) {
		s.call(t, http.MethodDelete, tenantPath+"/deployments/app", nil, nil)
		testkit.Eventually(t, patience, func(context.Context) error {
			if out, err := cluster.TryKubectl(t, "get", "priorityclass/"+class, "-n", ns, "deployment/web", "--ignore-not-found", "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
				return fmt.Errorf("still there: %q, %w", out, err)
			}
			return nil
		})
	})
}

// covers: G12, C6
func TestTwoAgentsInOneClusterAndSeveralRepositories(t *testing.T) {
	t.Parallel()
	cluster, s := testkit.SharedCluster(t), startServer(t)
	nsA, nsB := cluster.Namespace(t), cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "two-a"})
	b := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "two-b"})
	one := newRepo(t)
	two := newRepoOn(t, one.server, "more")
	// One repository goes to one agent, another to both: cluster-wide agents in one cluster need separate
	// namespaces.
	for _, env := range []apiv1.CreateEnvironment{{Name: "only-a", Agents: []string{"two-a"}}, {Name: "only-b", Agents: []string{"two-b"}}} {
		s.call(t, http.MethodPost, tenantPath+"/environments", env, nil)
	}
	first := one.push(t, map[string]string{"app/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {value: one}\n"})
	second := two.push(t, map[string]string{"app/cm.yaml": configMap(nsA, "more", "two")})
	s.deploy(t, apiv1.CreateDeployment{Name: "to-a", Environment: "only-a", Namespace: nsA, Source: apiv1.Source{RepoURL: one.url, Path: "app"}})
	s.deploy(t, apiv1.CreateDeployment{Name: "to-b", Environment: "only-b", Namespace: nsB, Source: apiv1.Source{RepoURL: one.url, Path: "app"}})
	s.deploy(t, apiv1.CreateDeployment{Name: "more", Environment: "only-a", Source: apiv1.Source{RepoURL: two.url, Path: "app"}})
	s.awaitDeployment(t, "to-a", healthyAt(first, 1))
	s.awaitDeployment(t, "to-b", healthyAt(first, 1))
	s.awaitDeployment(t, "more", healthyAt(second, 1))
	for _, ns := range []string{nsA, nsB} {
		shows(t, cluster, "one", "-n", ns, "get", "configmap", "shared", "-o", "jsonpath={.data.value}")
	}

	va, err := s.agent(t.Context(), a.name)
	if err != nil {
		t.Fatal(err)
	}
	vb, err := s.agent(t.Context(), b.name)
	if err != nil {
		t.Fatal(err)
	}
	ca, cb := va.Connections[0], vb.Connections[0]
	if va.ID == vb.ID || ca.Replica == cb.Replica || ca.ClusterUID != cb.ClusterUID || ca.ClusterUID == "" {
		t.Errorf("two agents of one cluster are not distinguished: %+v, %+v", ca, cb)
	}
	out, err := s.kedge(t, "get", "agents")
	if err != nil || !strings.Contains(out, "two-a") || !strings.Contains(out, "two-b") {
		t.Errorf("kedge get agents: %v\n%s", err, out)
	}
	// Each agent changes only its own objects: if one is stopped, the other does not correct its drift.
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	cluster.Kubectl(t, "-n", nsB, "delete", "configmap", "shared")
	shows(t, cluster, "one", "-n", nsB, "get", "configmap", "shared", "-o", "jsonpath={.data.value}")
}
