package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// The resources of the proposal for disconnected clusters, with an apiVersion, the registration Secret in the namespace of
// the ManagedEnvironment, and a repository that exists. TOKEN and REPOSITORY are replaced.
const (
	proposedEnvironment = `apiVersion: v1
kind: Secret
metadata:
  name: my-internal-cluster-secret
  namespace: jgwest-tenant
stringData:
  registrationToken: TOKEN
---
apiVersion: gitops.kedge.dev/v1alpha1
kind: ManagedEnvironment
metadata:
  name: my-internal-cluster
  namespace: jgwest-tenant
spec:

  disconnectedCluster: # new field
    gitopsEngineNamespace: openshift-gitops
    clusterRegistrationSecret: my-internal-cluster-secret
`
	proposedDeployment = `apiVersion: gitops.kedge.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: my-app
  namespace: jgwest-tenant

spec:
  source:
    repoURL: REPOSITORY
    path: ./
    
  destination:
    namespace: jgwest
    environment: my-internal-cluster # reference to ManagedEnv, above
`
)

// A GitOpsDeployment becomes an Application of a real Argo CD in a disconnected cluster. The agent runs with the
// permissions of its manifest.
// covers: E1, E2, E3, E6, K1, K2, K3
func TestCustomResourcesDeployThroughArgoCD(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	const ns, target, engine = "jgwest-tenant", "jgwest", "openshift-gitops"
	for _, name := range []string{ns, target, engine} {
		c.cluster.Kubectl(t, "create", "namespace", name)
	}
	argocd.Start(t, argocd.Config{Cluster: c.cluster, Namespace: engine})
	token := randomToken()
	environment := strings.Replace(proposedEnvironment, "TOKEN", token, 1)
	c.cluster.Apply(t, environment)
	awaitEnvironment := func(condition string) {
		t.Helper()
		c.cluster.Kubectl(t, "-n", ns, "wait", "--for=condition="+condition, "managedenvironment/my-internal-cluster", "--timeout=60s")
	}
	awaitEnvironment("Ready")
	installRegistered(t, c.testServer, c.cluster, ns, token).run(t)
	awaitEnvironment("Connected")
	if out, err := c.kedge(t, "describe", "agent", "my-internal-cluster", "--tenant", ns); err != nil || !strings.Contains(out, engine) {
		t.Errorf("the description does not name the namespace of Argo CD: %v\n%s", err, out)
	}

	commit := c.repo.push(t, map[string]string{"a.yaml": configMap(target, "cm-a", "one"), "other/b.yaml": configMap(target, "cm-b", "one")})
	deployment := strings.Replace(proposedDeployment, "REPOSITORY", c.repo.url, 1)
	c.cluster.Apply(t, deployment)
	got := awaitGitOpsDeployment(t, c.cluster, ns, "my-app", syncedAndHealthy(commit))
	if got.Spec.Type != "automated" || fmt.Sprint(values(t, c.cluster, target)) != "map[cm-a:one cm-b:one]" {
		t.Errorf("type %q, resources %+v, the cluster has %v", got.Spec.Type, got.Status.Resources, values(t, c.cluster, target))
	}
	if got := c.cluster.Kubectl(t, "-n", engine, "get", "applications", "-o", "jsonpath={.items[*].spec.source.targetRevision}"); got != commit {
		t.Errorf("the Applications have the revisions %q, want %s", got, commit)
	}
	// A push arrives, and an edit of the path prunes what has left.
	commit = c.repo.push(t, map[string]string{"a.yaml": configMap(target, "cm-a", "two")})
	awaitGitOpsDeployment(t, c.cluster, ns, "my-app", syncedAndHealthy(commit))
	c.cluster.Apply(t, strings.Replace(deployment, "path: ./", "path: ./other", 1))
	awaitGitOpsDeployment(t, c.cluster, ns, "my-app", func(d v1alpha1.GitOpsDeployment) error {
		if err := syncedAndHealthy(commit)(d); err != nil || len(d.Status.Resources) != 1 || d.Status.Resources[0].Name != "cm-b" {
			return fmt.Errorf("the edit is not applied: %w", err)
		}
		return nil
	})
	if got := fmt.Sprint(values(t, c.cluster, target)); got != "map[cm-b:one]" {
		t.Errorf("after the edit the cluster has %s", got)
	}
	// The namespace of Argo CD cannot change while there are deployments.
	c.cluster.Apply(t, strings.Replace(environment, engine, "elsewhere", 1))
	awaitEnvironment("Ready=false")
	c.cluster.Apply(t, environment)
	awaitEnvironment("Ready")

	c.cluster.Kubectl(t, "-n", ns, "delete", "gitopsdeployment", "my-app", "--timeout=60s")
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := c.cluster.TryKubectl(t, "-n", engine, "get", "applications,appprojects", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "name")
		if got := fmt.Sprint(values(t, c.cluster, target)); err == nil && (strings.TrimSpace(out) != "" || got != "map[]") {
			err = fmt.Errorf("%s and %s are left", out, got)
		}
		return err
	})
	c.cluster.Kubectl(t, "-n", ns, "delete", "managedenvironment", "my-internal-cluster", "--timeout=60s")
}
