package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// ownerPolicy writes the ConfigMap with the policy of the cluster owner, and updates the mount of the agent
// like a kubelet.
func (a *testAgent) ownerPolicy(tb testing.TB, policy string) {
	tb.Helper()
	a.cluster.Apply(tb, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: kedge-agent-policy, namespace: kedge-agent-%[1]s, labels: {kedge.dev/install: %[1]s}}
data:
  policy.yaml: |
    %[2]s
`, a.name, policy))
	if err := a.pod.Remount(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// covers: A1 (kind filters, by the owner of the cluster)
func TestOwnerOfAClusterForbidsWithoutARestart(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "owned"})
	a.ownerPolicy(t, "kinds: {exclude: [Secret]}")
	a.run(t)
	a.awaitConnected(t, s)
	commit := repo.push(t, map[string]string{
		"secret/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: " + ns + "}\n",
		"page/cm.yaml":  configMap(ns, "page", "one"),
		"own/cm.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kedge-agent-policy, namespace: kedge-agent-owned}\ndata: {policy.yaml: '{}'}\n",
	})
	for _, path := range []string{"secret", "page", "own"} {
		s.deploy(t, apiv1.CreateDeployment{Name: path, Source: apiv1.Source{RepoURL: repo.url, Path: path}, Policy: apiv1.NewPolicy{Adopt: true}})
	}
	s.awaitDeployment(t, "page", healthyAt(commit, 1))
	s.awaitDeployment(t, "secret", says("Failed", "the owner of this cluster does not allow kind Secret"))
	s.awaitDeployment(t, "own", says("Failed", "never changes its own installation"))

	a.ownerPolicy(t, "deletions: [") // an invalid file lifts nothing
	a.ownerPolicy(t, "kinds: {exclude: [ConfigMap]}")
	s.awaitDeployment(t, "secret", healthyAt(commit, 1))
	repo.push(t, map[string]string{"page/cm.yaml": configMap(ns, "page", "two")})
	s.tenantClient(t, "default").look(t, repo.url)
	s.awaitDeployment(t, "page", says("Failed", "the owner of this cluster does not allow kind ConfigMap"))
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "page", "-o", "jsonpath={.data}"); !strings.Contains(got, "one") {
		t.Errorf("page holds %s, want it left as it was", got)
	}
	for _, r := range a.writes(t) {
		if r.Name == "kedge-agent-policy" {
			t.Errorf("the agent was asked to write the policy: %+v", r)
		}
	}
	// At the start there is no earlier policy that could stay in force.
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	a.ownerPolicy(t, "deletions: [")
	a.run(t)
	<-a.Done()
	if code := a.ExitCode(); code != 2 || !strings.Contains(a.Log(), "the policy of the cluster's owner") {
		t.Errorf("the agent ended with %d\n%s", code, a.Log())
	}
}

// covers: A18 (with the permissions of the enrollment manifest of a limited agent)
func TestLimitedAgentActsAsAServiceAccount(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	cluster.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]
`, ns))
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "acting", Namespaces: []string{ns}})
	commit := repo.push(t, map[string]string{
		"allowed/cm.yaml": configMap(ns, "page", "one"),
		"denied/s.yaml":   "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: " + ns + "}\n",
	})
	for _, path := range []string{"allowed", "denied"} {
		s.deploy(t, apiv1.CreateDeployment{
			Name: path, Source: apiv1.Source{RepoURL: repo.url, Path: path}, Policy: apiv1.NewPolicy{ServiceAccount: ns + "/deployer"},
		})
	}
	s.awaitDeployment(t, "allowed", healthyAt(commit, 1))
	s.awaitDeployment(t, "denied", says("Failed", "system:serviceaccount:"+ns+":deployer"))
}
