package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// covers: A1 (the kind filter of a ManagedEnvironment), A6, K4
func TestKindFilterOfAManagedEnvironment(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	cluster, repo := c.cluster, c.repo
	ns, target := cluster.Namespace(t), cluster.Namespace(t)
	token := randomToken()
	cluster.Apply(t, registration(ns, token))
	cluster.Kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "managedenvironment/my-internal-cluster", "--timeout=30s")
	a := installRegistered(t, c.testServer, cluster, ns, token)
	a.run(t)
	first := repo.push(t, map[string]string{"app/a.yaml": configMap(target, "a", "one"), "app/s.yaml": secretText(target, "s")})
	cluster.Apply(t, fmt.Sprintf(`apiVersion: gitops.kedge.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: my-app, namespace: %s}
spec:
  source: {repoURL: %s, path: app}
  destination: {namespace: %s, environment: my-internal-cluster}
`, ns, repo.url, target))
	awaitGitOpsDeployment(t, cluster, ns, "my-app", syncedAndHealthy(first))
	before := len(a.writes(t))
	patch := func(filter string) (string, error) {
		return cluster.TryKubectl(t, "-n", ns, "patch", "managedenvironment", "my-internal-cluster", "--type=merge",
			"-p", `{"spec":{"disconnectedCluster":{"kindFilter":`+filter+`}}}`)
	}
	exists := func() {
		t.Helper()
		if cluster.Kubectl(t, "-n", target, "get", "secret", "s", "--ignore-not-found", "-o", "name") == "" {
			t.Fatal("the object of an excluded kind is gone")
		}
	}
	many := `{"exclude":["A0"` + strings.Repeat(`,"A0"`, 64) + `]}`
	for _, bad := range []string{`{"exclude":["secrets"]}`, `{"include":["Config*"]}`, many} {
		if out, err := patch(bad); err == nil {
			t.Errorf("the API server accepts %s: %s", bad, out)
		}
	}
	if out, err := patch(`{"exclude":["Secret"]}`); err != nil {
		t.Fatal(err, out)
	}
	awaitGitOpsDeployment(t, cluster, ns, "my-app", func(d v1alpha1.GitOpsDeployment) error {
		return hasCondition(d.Status.Conditions, "Synced", metav1.ConditionFalse, "KindNotAllowed")
	})
	exists()
	second := repo.push(t, map[string]string{"app/a.yaml": configMap(target, "a", "two"), "app/s.yaml": gitserver.Deleted})
	awaitGitOpsDeployment(t, cluster, ns, "my-app", syncedAndHealthy(second))
	exists()
	if out, err := patch(`null`); err != nil {
		t.Fatal(err, out)
	}
	awaitGitOpsDeployment(t, cluster, ns, "my-app", func(d v1alpha1.GitOpsDeployment) error {
		return hasCondition(d.Status.Conditions, "Synced", metav1.ConditionFalse, "PruneHeld")
	})
	exists()
	if deleted := deletionsIn(a.writes(t)[before:], target); len(deleted) > 0 {
		t.Errorf("changes of the filter deleted %+v", deleted)
	}
}
