package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// gitOpsDeployment reads a custom resource.
func gitOpsDeployment(tb testing.TB, cluster *testkit.Cluster, ns, name string) (v1alpha1.GitOpsDeployment, error) {
	tb.Helper()
	var out v1alpha1.GitOpsDeployment
	text, err := cluster.TryKubectl(tb, "-n", ns, "get", "gitopsdeployment", name, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	return out, err
}

func awaitGitOpsDeployment(tb testing.TB, cluster *testkit.Cluster, ns, name string, check func(v1alpha1.GitOpsDeployment) error) v1alpha1.GitOpsDeployment {
	tb.Helper()
	var out v1alpha1.GitOpsDeployment
	testkit.Eventually(tb, patience, func(context.Context) (err error) {
		if out, err = gitOpsDeployment(tb, cluster, ns, name); err != nil {
			return err
		}
		if err := check(out); err != nil {
			return fmt.Errorf("%w; status %+v", err, out.Status)
		}
		return nil
	})
	return out
}

func syncedAndHealthy(commit string) func(v1alpha1.GitOpsDeployment) error {
	return func(d v1alpha1.GitOpsDeployment) error {
		if d.Status.Sync.Status != "Synced" || d.Status.Health.Status != "Healthy" || d.Status.Sync.Revision != commit {
			return fmt.Errorf("not Synced and Healthy at %s", commit)
		}
		return nil
	}
}

func registration(ns, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: my-internal-cluster-secret, namespace: %[1]s}
stringData: {registrationToken: %[2]q}
---
apiVersion: gitops.kedge.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: my-internal-cluster, namespace: %[1]s}
spec:
  disconnectedCluster:
    clusterRegistrationSecret: my-internal-cluster-secret
`, ns, token)
}

// covers: K1, K2, K3, K5
// defect: B14
func TestCustomResourcesDeployFromGit(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	cluster, s, repo := c.cluster, c.testServer, c.repo
	ns, target := cluster.Namespace(t), cluster.Namespace(t)
	token := randomToken()
	cluster.Apply(t, registration(ns, token))
	cluster.Kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "managedenvironment/my-internal-cluster", "--timeout=30s")
	a := installRegistered(t, s, cluster, ns, token)
	a.run(t)
	cluster.Kubectl(t, "-n", ns, "wait", "--for=condition=Connected", "managedenvironment/my-internal-cluster", "--timeout=30s")

	commit := repo.push(t, map[string]string{"app/a.yaml": configMap(target, "a", "one"), "other/b.yaml": configMap(target, "b", "one")})
	app := func(path string) string {
		return fmt.Sprintf(`apiVersion: gitops.kedge.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: my-app, namespace: %s}
spec:
  source: {repoURL: %s, path: %s}
  destination: {namespace: %s, environment: my-internal-cluster}
`, ns, repo.url, path, target)
	}
	cluster.Apply(t, app("./app"))
	got := awaitGitOpsDeployment(t, cluster, ns, "my-app", syncedAndHealthy(commit))
	if len(got.Status.Resources) != 1 || got.Status.Resources[0].Name != "a" || got.Spec.Type != "automated" {
		t.Errorf("type %q, resources %+v", got.Spec.Type, got.Status.Resources)
	}
	cluster.Apply(t, app("other"))
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := cluster.TryKubectl(t, "-n", target, "get", "configmaps", "-o", "name")
		if err == nil && (!strings.Contains(out, "configmap/b") || strings.Contains(out, "configmap/a")) {
			err = fmt.Errorf("the namespace has %s", out)
		}
		return err
	})
	cluster.Kubectl(t, "-n", ns, "delete", "gitopsdeployment", "my-app", "--timeout=30s")
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := cluster.TryKubectl(t, "-n", target, "get", "configmaps", "-o", "name")
		if err == nil && strings.Contains(out, "configmap/b") {
			err = fmt.Errorf("the namespace has %s", out)
		}
		return err
	})
	cluster.Kubectl(t, "-n", ns, "delete", "managedenvironment", "my-internal-cluster", "--timeout=30s")
}

// installRegistered installs the agent of the ManagedEnvironment my-internal-cluster of a namespace, with the registration
// Secret on its side.
func installRegistered(tb testing.TB, s *testServer, cluster *testkit.Cluster, tenant, token string) *testAgent {
	tb.Helper()
	agentNS := cluster.Namespace(tb)
	cluster.Kubectl(tb, "-n", agentNS, "create", "secret", "generic", "my-internal-cluster-secret", "--from-literal=registrationToken="+token)
	manifest, err := s.kedge(tb, "agent", "manifest", "my-internal-cluster", "--tenant", tenant, "--agent-namespace", agentNS, "--registration-secret", "my-internal-cluster-secret")
	if err != nil {
		tb.Fatal(err, manifest)
	}
	cluster.Apply(tb, manifest)
	pod, err := newSite(tb, cluster).PodIn(tb.Context(), agentNS, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return &testAgent{name: "my-internal-cluster", namespace: agentNS, cluster: cluster, pod: pod}
}
