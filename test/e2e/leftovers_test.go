package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// inventoryOf lists the objects of a cluster that an agent, a deployment, or a resource can leave, in all namespaces. more are
// further kinds.
func inventoryOf(tb testing.TB, c *testkit.Cluster, more ...string) []string {
	tb.Helper()
	kinds := append([]string{
		"namespaces", "serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "secrets", "configmaps", "deployments", "leases",
	}, more...)
	out := c.Kubectl(tb, "get", strings.Join(kinds, ","), "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	return slices.DeleteFunc(slices.Sorted(strings.Lines(out)), func(line string) bool {
		return strings.HasPrefix(line, "Lease kube-") // of the control plane
	})
}

// awaitInventory waits until a cluster has exactly these objects.
func awaitInventory(tb testing.TB, c *testkit.Cluster, want []string, more ...string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		got := inventoryOf(tb, c, more...)
		left := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return slices.Contains(want, line) })
		lost := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return slices.Contains(got, line) })
		if len(left)+len(lost) > 0 {
			return fmt.Errorf("the cluster has %q in addition, and has lost %q", left, lost)
		}
		return nil
	})
}

// The manifest of an agent contains everything that an agent has in a cluster: no ServiceAccount, role, binding, or token
// stays after its deletion, also in the namespace of Argo CD. Neither a second installation nor the rotation of the token adds
// any.
//
// defect: B9
func TestUninstalledAgentsLeaveNothing(t *testing.T) {
	t.Parallel()
	cluster, s := testkit.StartCluster(t), startServer(t)
	limited, argo := cluster.Namespace(t), cluster.Namespace(t)
	before := inventoryOf(t, cluster)
	for _, req := range []apiv1.EnrollAgent{
		{Name: "whole"},
		{Name: "limited", Namespaces: []string{limited}},
		{Name: "engine", EngineNamespace: argo, EngineInstance: true, DeliverGitCredentials: true},
	} {
		a := enroll(t, s, cluster, req)
		installed := inventoryOf(t, cluster)
		if len(installed) == len(before) {
			t.Fatal("nothing is installed")
		}
		manifest := s.run(t, "agent", "manifest", req.Name)
		newSite(t, cluster).feed(t, manifest, "apply")
		s.run(t, "agent", "rotate-token", req.Name, "--wait")
		awaitInventory(t, cluster, installed)

		s.run(t, "agent", "uninstall", req.Name, "--delete-objects", "--yes")
		if err := a.Stop(); err != nil {
			t.Fatal(err)
		}
		newSite(t, cluster).feed(t, manifest, "delete", "--wait=false")
		awaitInventory(t, cluster, before)
	}
}

// What an agent keeps for a GitOpsDeployment goes with it. Nothing depends on the garbage collection of Kubernetes, which
// does not work across clusters: no object names another one as its owner.
// covers: K8
// defect: B18
func TestDeletedResourcesLeaveNothing(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, tenant *crTenant) {
		kinds := []string{"gitopsdeployments", "managedenvironments", "syncruns"}
		if tenant.engine != "" {
			kinds = append(kinds, "applications", "appprojects")
		}
		before := inventoryOf(t, tenant.cluster, kinds...)
		d := tenant.deploy(t, "app")
		during := inventoryOf(t, tenant.cluster, kinds...)
		if len(during) < len(before)+3 { // the resource, its object, and what the agent or Argo CD keeps
			t.Errorf("with a deployment, the cluster has only %q in addition", during)
		}
		owners := tenant.cluster.Kubectl(t, "get", "configmaps,secrets,"+strings.Join(kinds, ","), "-A", "-o", "jsonpath={.items[*].metadata.ownerReferences}")
		if strings.TrimSpace(owners) != "" {
			t.Errorf("objects have the owners %s", owners)
		}
		tenant.remove(t, d)
		awaitInventory(t, tenant.cluster, before, kinds...)
	})
}

// A GitOpsDeployment has an object in another namespace, which is a tenant with resources of its own. Nothing that looks at
// the resources or at the objects of a namespace deletes the object, because its resource is elsewhere: neither a start of the
// server or of the agents, which does everything that is done periodically, nor the deletion of all resources in that
// namespace.
// covers: K2
// defect: B14
func TestObjectsInNamespacesOfOtherTenantsStay(t *testing.T) {
	t.Parallel()
	onBothEngines(t, func(t *testing.T, tenant *crTenant) {
		other := tenant.crs.tenant(t)
		neighbour := other.deploy(t, "neighbour")
		commit := tenant.repo.push(t, map[string]string{"app/a.yaml": configMap(other.ns, "cm-elsewhere", "1"), "app/b.yaml": configMap(tenant.target, "cm-here", "1")})
		d := tenant.deployment("app", "app")
		tenant.create(t, d)
		tenant.awaitSynced(t, d, commit)
		uid := tenant.cluster.Kubectl(t, "-n", other.ns, "get", "configmap", "cm-elsewhere", "-o", "jsonpath={.metadata.uid}")

		tenant.stopServer(t)
		for _, a := range []*testAgent{tenant.agent, other.agent} {
			if err := a.Stop(); err != nil {
				t.Fatal(err)
			}
			a.run(t)
		}
		tenant.startAgain(t)
		commit = tenant.repo.push(t, map[string]string{"app/b.yaml": configMap(tenant.target, "cm-here", "2")})
		tenant.awaitSynced(t, d, commit)
		other.remove(t, neighbour)
		env := &v1alpha1.ManagedEnvironment{}
		other.await(t, "my-internal-cluster", env, func() error { return nil })
		if err := other.Delete(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		other.awaitGone(t, env.Name, env)
		commit = tenant.repo.push(t, map[string]string{"app/b.yaml": configMap(tenant.target, "cm-here", "3")})
		tenant.awaitSynced(t, d, commit)
		if got := tenant.cluster.Kubectl(t, "-n", other.ns, "get", "configmap", "cm-elsewhere", "-o", "jsonpath={.metadata.uid}"); got != uid {
			t.Errorf("the object in the other namespace was %s and is %s", uid, got)
		}
		for _, r := range deletionsIn(tenant.cluster.Requests(t), other.ns) {
			if r.Resource == "configmaps" {
				t.Errorf("the object in the other namespace was deleted: %+v", r)
			}
		}
		tenant.remove(t, d)
		gone(t, tenant.cluster, "-n", other.ns, "get", "configmap", "cm-elsewhere")
	})
}
