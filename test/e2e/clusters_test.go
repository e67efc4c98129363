package e2e_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: G12
func TestOneRepositoryToTwoClustersAndTwoRepositoriesToOne(t *testing.T) {
	t.Parallel()
	near, far := testkit.SharedCluster(t), testkit.StartCluster(t)
	s, one, two := startServer(t), newRepo(t), newRepo(t)
	near.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: in-both}\n")
	far.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: in-both}\n")
	t.Cleanup(func() { _, _ = near.TryKubectl(t, "delete", "namespace", "in-both", "--wait=false") })
	enroll(t, s, near, apiv1.EnrollAgent{Name: "cluster-near"})
	enroll(t, s, far, apiv1.EnrollAgent{Name: "cluster-far"})
	if a, b := clusterUID(t, s, "cluster-near"), clusterUID(t, s, "cluster-far"); a == "" || a == b {
		t.Fatalf("two clusters have the UIDs %q and %q", a, b)
	}
	d := s.tenantClient(t, "default")
	d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "only-near", Agents: []string{"cluster-near"}})

	// One repository goes to both clusters, another one only to the first.
	first := one.push(t, map[string]string{"cm.yaml": configMap("in-both", "shared", "one")})
	other := two.push(t, map[string]string{"cm.yaml": configMap("in-both", "beside", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "shared", Source: apiv1.Source{RepoURL: one.url}})
	s.deploy(t, apiv1.CreateDeployment{Name: "beside", Environment: "only-near", Source: apiv1.Source{RepoURL: two.url}})
	s.awaitDeployment(t, "shared", healthyAt(first, 2))
	s.awaitDeployment(t, "beside", healthyAt(other, 1))
	for _, cluster := range []*testkit.Cluster{near, far} {
		shows(t, cluster, "one", "-n", "in-both", "get", "configmap", "shared", "-o", "jsonpath={.data.value}")
	}
	shows(t, near, "one", "-n", "in-both", "get", "configmap", "beside", "-o", "jsonpath={.data.value}")
	if got := valueOf(t, far, "in-both", "beside"); got != "" {
		t.Errorf("an object for one cluster is in the other: %q", got)
	}

	// One repository is gone: the other one still works, in both clusters.
	two.server.SetDown(true)
	d.look(t, two.url)
	d.await(t, "beside", says("Failed", ""))
	one.webhooks(t, s)
	second := one.push(t, map[string]string{"cm.yaml": configMap("in-both", "shared", "two")})
	s.awaitDeployment(t, "shared", healthyAt(second, 2))
	for _, cluster := range []*testkit.Cluster{near, far} {
		shows(t, cluster, "two", "-n", "in-both", "get", "configmap", "shared", "-o", "jsonpath={.data.value}")
	}
	if got := valueOf(t, near, "in-both", "beside"); got != "one" {
		t.Errorf("without its repository the object is %q", got)
	}
}

func clusterUID(t *testing.T, s *testServer, agent string) string {
	t.Helper()
	v, err := s.agent(t.Context(), agent)
	if err != nil || len(v.Connections) == 0 {
		t.Fatalf("agent %s is %+v, %v", agent, v, err)
	}
	return v.Connections[0].ClusterUID
}
