package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: T10
func TestGrantedEnvironmentIsBoundedAndRevokedWithoutDeleting(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns, beyond := cluster.Namespace(t), cluster.Namespace(t)
	owner, guest := s.tenantClient(t, "owner"), s.tenantClient(t, "guest")
	a := ownedBy(t, s, cluster, owner, apiv1.EnrollAgent{Name: "granted"})
	source := func(path string) apiv1.Source { return apiv1.Source{RepoURL: repo.url, Path: path} }
	commit := repo.push(t, map[string]string{
		"within/cm.yaml":    configMap(ns, "page", "one"),
		"namespace/cm.yaml": configMap(beyond, "page", "one"),
		"kind/secret.yaml":  "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: " + ns + "}\n",
		"cluster/ns.yaml":   "apiVersion: v1\nkind: Namespace\nmetadata: {name: x-" + ns + "}\n",
	})

	// Without a grant the environment is as if it did not exist.
	refused := guest.want(t, 422, "POST", "deployments", apiv1.CreateDeployment{Name: "within", Environment: "owner/default", Source: source("within")})
	missing := guest.want(t, 422, "POST", "deployments", apiv1.CreateDeployment{Name: "within", Environment: "nobody/default", Source: source("within")})
	if strings.ReplaceAll(string(refused.Body), "owner/default", "X") != strings.ReplaceAll(string(missing.Body), "nobody/default", "X") {
		t.Errorf("an environment of others reads %s, a missing one %s", refused.Body, missing.Body)
	}
	grant := decode[apiv1.Grant](t, owner.want(t, 201, "POST", "grants", apiv1.CreateGrant{
		Environment: "default", Grantee: "guest", Limits: apiv1.Limits{Namespaces: []string{ns}, Kinds: []string{"ConfigMap", "Namespace"}},
	}))
	received := get[apiv1.List[apiv1.Grant]](t, guest, "grants").Items
	if len(received) != 1 || received[0].Direction != "received" || received[0].Environment != "owner/default" {
		t.Errorf("the guest was granted %+v", received)
	}
	for _, name := range []string{"within", "namespace", "kind", "cluster"} {
		guest.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: name, Environment: "owner/default", Source: source(name)})
	}
	v := guest.await(t, "within", healthyAt(commit, 1))
	if v.Targets[0].Agent != "granted" {
		t.Errorf("the target is on %q", v.Targets[0].Agent)
	}
	// Nothing beyond the limits is sent: the server refuses it, with the name of the object.
	for name, words := range map[string][]string{
		"namespace": {beyond, "page"}, "kind": {"Secret", "limits"}, "cluster": {"Namespace", "cluster-scoped"},
	} {
		v := guest.await(t, name, says("Failed", words[0]))
		if !strings.Contains(v.Message, words[1]) || v.Targets[0].Commit != "" {
			t.Errorf("deployment %s is refused with %q, and its target is %+v", name, v.Message, v.Targets[0])
		}
	}
	for _, r := range a.writes(t) {
		if r.Namespace == beyond || r.Resource == "secrets" && r.Namespace == ns || r.Resource == "namespaces" {
			t.Errorf("the agent was asked to write %+v", r)
		}
	}
	// The owner sees the target on its agent, and nothing else of the guest.
	if seen := get[apiv1.Agent](t, owner, "agents/granted"); seen.Targets == 0 {
		t.Errorf("the owner's agent reads %+v", seen)
	}
	if list := get[apiv1.List[apiv1.Deployment]](t, owner, "deployments").Items; len(list) != 0 {
		t.Errorf("the owner reads the guest's deployments %+v", list)
	}
	guest.want(t, 403, "PUT", "grants/"+grant.ID, apiv1.UpdateGrant{})

	// Wider limits take effect without a commit; narrower ones stop syncs and delete nothing.
	owner.want(t, 200, "PUT", "grants/"+grant.ID, apiv1.UpdateGrant{Limits: apiv1.Limits{Namespaces: []string{ns, beyond}, Kinds: []string{"ConfigMap"}}})
	guest.await(t, "namespace", healthyAt(commit, 1))
	before := len(a.writes(t))
	if out, err := s.kedge(t, "env", "grant", "delete", grant.ID, "--tenant", "owner"); err != nil {
		t.Fatalf("kedge env grant delete: %v\n%s", err, out)
	}
	for _, name := range []string{"within", "namespace"} {
		guest.await(t, name, func(v apiv1.Deployment) error {
			if v.Targets[0].Sync != "Detached" || !strings.Contains(v.Targets[0].DetachedWhy, "granted") {
				return errors.New("not detached")
			}
			return nil
		})
	}
	newer := repo.push(t, map[string]string{"within/cm.yaml": configMap(ns, "page", "two")})
	guest.look(t, repo.url)
	guest.await(t, "within", func(v apiv1.Deployment) error {
		if v.Commit != newer {
			return errors.New("not rendered")
		}
		return nil
	})
	for _, where := range []string{ns, beyond} {
		if got := cluster.Kubectl(t, "-n", where, "get", "configmap", "page", "-o", "jsonpath={.data.value}"); got != "one" {
			t.Errorf("after the grant was revoked the object in %s is %q", where, got)
		}
	}
	if deleted := deletions(a.writes(t)[before:]); len(deleted) > 0 {
		t.Errorf("revoking the grant deleted %+v", deleted)
	}
}

// ownedBy is enroll for an agent of another tenant than the default one.
func ownedBy(tb testing.TB, s *testServer, cluster *testkit.Cluster, d tenantClient, req apiv1.EnrollAgent) *testAgent {
	tb.Helper()
	made := decode[apiv1.Enrollment](tb, d.want(tb, 201, "POST", "agents", req))
	a := apply(tb, cluster, req.Name, made.Manifest)
	a.run(tb)
	awaitAgent(tb, d, req.Name)
	return a
}
