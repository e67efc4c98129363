package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: A6 (held, listed, confirmed by name), A5
func TestACommitThatTakesMuchAwayIsConfirmedByName(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	files := map[string]string{"web/keep.yaml": configMap(ns, "keep", "one")}
	for i := range 12 {
		files[fmt.Sprintf("web/old-%d.yaml", i)] = configMap(ns, fmt.Sprintf("old-%d", i), "one")
	}
	commit := repo.push(t, files)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "careful"})
	s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url, Path: "web"}})
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	repo.webhooks(t, s)

	for name := range files {
		if name != "web/keep.yaml" {
			files[name] = ""
		}
	}
	commit = repo.push(t, files)
	s.awaitDeployment(t, "web", func(v apiv1.Deployment) error {
		if err := heldAt(commit, 12)(v); err != nil {
			return err
		}
		if !strings.Contains(v.Targets[0].Message, "12 of 13") {
			return errors.New("nothing is said to be held")
		}
		return nil
	})
	if n := len(strings.Fields(cluster.Kubectl(t, "-n", ns, "get", "configmaps", "-o", "name"))); n < 13 {
		t.Fatalf("%d ConfigMaps are left, want all", n)
	}
	out, err := s.kedge(t, "deploy", "prunes", "web")
	if err != nil || !strings.Contains(out, ns+"/old-3") {
		t.Fatalf("kedge deploy prunes: %v\n%s", err, out)
	}
	if out, err := s.kedge(t, "deploy", "confirm-prune", "web", "ConfigMap "+ns+"/keep"); err == nil {
		t.Errorf("what is not held was confirmed:\n%s", out)
	}
	if out, err := s.kedge(t, "deploy", "confirm-prune", "web", "ConfigMap "+ns+"/old-3"); err != nil {
		t.Fatalf("kedge deploy confirm-prune: %v\n%s", err, out)
	}
	gone(t, cluster, "-n", ns, "get", "configmap", "old-3")
	cluster.Kubectl(t, "-n", ns, "get", "configmap", "old-4")

	// The rest is below the limit now, and another commit does not affect it.
	commit = repo.push(t, map[string]string{"web/keep.yaml": configMap(ns, "keep", "two")})
	s.awaitDeployment(t, "web", heldAt(commit, 11))
	cluster.Kubectl(t, "-n", ns, "get", "configmap", "old-4")
	if out, err := s.kedge(t, "deploy", "confirm-prune", "web", "--all", "--count=11"); err != nil {
		t.Fatalf("kedge deploy confirm-prune --all: %v\n%s", err, out)
	}
	gone(t, cluster, "-n", ns, "get", "configmap", "old-4")
	cluster.Kubectl(t, "-n", ns, "get", "configmap", "keep")
}

// covers: D2 (report, then correct), A11 (dry run), A3 (waves), with the real programs
func TestAPolicyIsFollowedEverywhere(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	commit := repo.push(t, map[string]string{"web/a.yaml": configMap(ns, "a", "one")})
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "obedient"})
	if out, err := s.kedge(t, "deploy", "create", "web", "--repo", repo.url, "--path", "web", "--preview-only"); err != nil {
		t.Fatalf("kedge deploy create: %v\n%s", err, out)
	}
	outOfSync := func(text string) func(apiv1.Deployment) error {
		return func(v apiv1.Deployment) error {
			if v.Sync != "OutOfSync" || len(v.Targets) != 1 || len(v.Targets[0].Objects) != 1 || !strings.Contains(v.Targets[0].Objects[0].Message, text) {
				return errors.New("want it OutOfSync, and " + text)
			}
			return nil
		}
	}
	s.awaitDeployment(t, "web", outOfSync("created"))
	gone(t, cluster, "-n", ns, "get", "configmap", "a")
	if out, err := s.kedge(t, "deploy", "set", "web", "--preview-only=false", "--drift=report"); err != nil {
		t.Fatalf("kedge deploy set: %v\n%s", err, out)
	}
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "a", "--type=merge", "--field-manager=somebody", "-p", `{"data":{"value":"edited"}}`)
	s.awaitDeployment(t, "web", outOfSync("somebody"))
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.data.value}"); got != "edited" {
		t.Errorf("drift was healed to %q, want it reported only", got)
	}
	// A requested sync corrects it, and later drift is only reported as before.
	if out, err := s.kedge(t, "sync", "web", "--wait"); err != nil || !strings.Contains(out, "has succeeded") {
		t.Fatalf("kedge sync --wait: %v\n%s", err, out)
	}
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.data.value}"); got != "one" {
		t.Errorf("after a sync a is %q, want it restored", got)
	}
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "a", "--type=merge", "--field-manager=somebody", "-p", `{"data":{"value":"edited again"}}`)
	s.awaitDeployment(t, "web", outOfSync("somebody"))
	if out, err := s.kedge(t, "deploy", "set", "web", "--drift=correct"); err != nil {
		t.Fatalf("kedge deploy set: %v\n%s", err, out)
	}
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.data.value}"); got != "one" {
		t.Errorf("a is %q, want it restored", got)
	}
}
