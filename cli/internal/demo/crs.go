package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/deploy/crds"
)

const (
	// crNamespace is the namespace of the custom resources, and so the tenant.
	crNamespace = "demo-tenant"
	// crAgentNamespace is the namespace of the agents.
	crAgentNamespace = "gitops-service-agent"
	crSecret         = "cluster-registration"
	crEnvironment    = "everywhere"
)

// installDefinitions prepares the first cluster for custom resources.
func (d *demo) installDefinitions(ctx context.Context) error {
	manifest, err := crds.Manifest()
	if err != nil {
		return err
	}
	first := d.clusters[0]
	if _, err := first.Run(ctx, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	if _, err := first.Run(ctx, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return err
	}
	_, err = first.Run(ctx, "", "create", "namespace", crNamespace)
	return err
}

// registerAgent creates a ManagedEnvironment with a registration Secret for a cluster, and installs the agent with the same
// Secret there.
func (d *demo) registerAgent(ctx context.Context, c namedCluster) error {
	token := strings.ToLower(rand.Text() + rand.Text())
	secret := func(namespace string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s-%s, namespace: %s}\nstringData: {registrationToken: %s}\n", crSecret, c.name, namespace, token)
	}
	_, err := d.clusters[0].Run(ctx, secret(crNamespace)+fmt.Sprintf(`---
apiVersion: gitops.kedge.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  disconnectedCluster:
    clusterRegistrationSecret: %[3]s-%[1]s
    labels: {fleet: demo}
`, c.name, crNamespace, crSecret), "apply", "-f", "-")
	if err != nil {
		return err
	}
	if _, err := d.clusters[0].Run(ctx, "", "-n", crNamespace, "wait", "--for=condition=Ready", "managedenvironment/"+c.name, "--timeout=60s"); err != nil {
		return err
	}
	manifest, err := d.client.Manifest(ctx, c.name, client.ManifestOptions{Namespace: crAgentNamespace, RegistrationSecret: crSecret + "-" + c.name})
	if err != nil {
		return err
	}
	if _, err := c.Run(ctx, string(manifest), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := c.Run(ctx, secret(crAgentNamespace), "apply", "-f", "-"); err != nil {
		return err
	}
	pod, err := c.PodIn(ctx, crAgentNamespace, filepath.Join(d.cfg.BinDir, "kedge-agent"), d.agentDir(c))
	if err != nil {
		return err
	}
	return d.runAgent(ctx, c, pod)
}

// applyDeployment declares the application as a GitOpsDeployment.
func (d *demo) applyDeployment(ctx context.Context) error {
	_, err := d.clusters[0].Run(ctx, fmt.Sprintf(`apiVersion: gitops.kedge.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  agents: {matchLabels: {fleet: demo}}
---
apiVersion: gitops.kedge.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: %[3]s, namespace: %[2]s}
spec:
  source: {repoURL: %[4]q, path: app}
  destination: {environment: %[1]s, namespace: %[5]s}
`, crEnvironment, crNamespace, deployment, d.repo.url(), namespace), "apply", "-f", "-")
	if err != nil {
		return err
	}
	_, err = d.clusters[0].Run(ctx, "", "-n", crNamespace, "wait", "--for=condition=Accepted", "gitopsdeployment/"+deployment, "--timeout=60s")
	return err
}
