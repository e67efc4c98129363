package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: D8 (a deployment that is deleted with its objects kept), through server, wire and engine
func TestDeploymentIsDeletedAndItsObjectsStay(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	kept, removed := cluster.Namespace(t), cluster.Namespace(t)
	d := s.tenantClient(t, "default")
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "keeper"})
	commit := repo.push(t, map[string]string{"kept/cm.yaml": configMap(kept, "page", "one"), "removed/cm.yaml": configMap(removed, "page", "one")})
	for _, name := range []string{"kept", "removed"} {
		s.deploy(t, apiv1.CreateDeployment{Name: name, Source: apiv1.Source{RepoURL: repo.url, Path: name}})
		s.awaitDeployment(t, name, healthyAt(commit, 1))
	}
	uid := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid}")

	// Without a terminal nothing is deleted, and the effect is printed.
	out, err := s.kedge(t, "deploy", "delete", "removed")
	if err == nil || !strings.Contains(out, "1 object on 1 cluster") || !strings.Contains(out, "--yes") {
		t.Errorf("without --yes: %v\n%s", err, out)
	}
	s.awaitDeployment(t, "removed", healthyAt(commit, 1))

	before := len(a.writes(t))
	if out, err := s.kedge(t, "deploy", "delete", "kept", "--keep-objects", "--yes", "--wait"); err != nil {
		t.Fatalf("kedge deploy delete --keep-objects: %v\n%s", err, out)
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		if code := d.ask(t, "GET", "deployments/kept", nil).Code; code != 404 {
			return errors.New("it is still there")
		}
		return nil
	})
	if deleted := deletionsIn(a.writes(t)[before:], kept); len(deleted) > 0 {
		t.Errorf("the agent deleted %+v", deleted)
	}
	if got := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid} {.data.value}"); got != uid+" one" {
		t.Errorf("the object is %q, and was %s", got, uid)
	}
	// It is unmanaged: an edit stays. Its name is free, and the next owner may adopt it.
	cluster.Kubectl(t, "-n", kept, "patch", "configmap", "page", "--type=merge", "-p", `{"data":{"value":"mine"}}`)
	s.deploy(t, apiv1.CreateDeployment{Name: "kept", Source: apiv1.Source{RepoURL: repo.url, Path: "kept"}, Policy: apiv1.NewPolicy{Adopt: true, Force: true}})
	s.awaitDeployment(t, "kept", healthyAt(commit, 1))
	if got := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid} {.data.value}"); got != uid+" one" {
		t.Errorf("the object that was adopted again is %q, and was %s", got, uid)
	}
	// Without the option its objects go.
	d.want(t, 202, "DELETE", "deployments/removed", nil)
	gone(t, cluster, "-n", removed, "get", "configmap", "page")
}
