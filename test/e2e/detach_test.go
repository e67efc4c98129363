package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: P10, D8 (the target that leaves its environment)
func TestAgentThatLeavesAnEnvironmentLetsGo(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	kept, pruned := cluster.Namespace(t), cluster.Namespace(t)
	d := s.tenantClient(t, "default")
	d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "eu", MatchLabels: map[string]string{"region": "eu"}})
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "leaver", Labels: map[string]string{"region": "eu"}})
	commit := repo.push(t, map[string]string{
		"kept/cm.yaml": configMap(kept, "page", "one"), "pruned/cm.yaml": configMap(pruned, "page", "one"),
	})
	for name, onDetach := range map[string]bool{"kept": false, "pruned": true} {
		s.deploy(t, apiv1.CreateDeployment{
			Name: name, Environment: "eu", Source: apiv1.Source{RepoURL: repo.url, Path: name}, Policy: apiv1.NewPolicy{PruneOnDetach: onDetach},
		})
		s.awaitDeployment(t, name, healthyAt(commit, 1))
	}
	uid := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid}")

	before := len(a.writes(t))
	if out, err := s.kedge(t, "agent", "label", "leaver", "region=us", "--yes"); err != nil {
		t.Fatalf("kedge agent label: %v\n%s", err, out)
	}
	v := s.awaitDeployment(t, "kept", func(v apiv1.Deployment) error {
		if len(v.Targets) != 1 || v.Targets[0].Sync != "Detached" || v.Targets[0].ObservedGeneration != v.Targets[0].Generation {
			return errors.New("not detached")
		}
		return nil
	})
	if target := v.Targets[0]; target.DetachedAt.IsZero() || !strings.Contains(target.DetachedWhy, "eu") || len(target.Objects) != 1 || target.Objects[0].Name != "page" {
		t.Errorf("the detached target is not listed: %+v", target)
	}
	out, err := s.kedge(t, "status", "kept")
	if err != nil || !strings.Contains(out, "Detached") {
		t.Errorf("kedge status of a detached target: %v\n%s", err, out)
	}
	gone(t, cluster, "-n", pruned, "get", "configmap", "page")
	s.awaitDeployment(t, "pruned", func(v apiv1.Deployment) error {
		if len(v.Targets) != 0 {
			return errors.New("the target that was pruned is still there")
		}
		return nil
	})
	for _, r := range deletions(a.writes(t)[before:]) {
		if r.Namespace == kept {
			t.Errorf("the agent deleted %+v", r)
		}
	}
	// It is unmanaged now: an edit stays, and nothing newer is applied.
	repo.webhooks(t, s)
	cluster.Kubectl(t, "-n", kept, "patch", "configmap", "page", "--type=merge", "-p", `{"data":{"other":"mine"}}`)
	newer := repo.push(t, map[string]string{"kept/cm.yaml": configMap(kept, "page", "two"), "pruned/cm.yaml": configMap(pruned, "page", "two")})
	s.awaitDeployment(t, "kept", func(v apiv1.Deployment) error {
		if v.Commit != newer {
			return errors.New("not rendered")
		}
		return nil
	})
	if got := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.data.value}"); got != "one" {
		t.Errorf("a detached object was changed to %q", got)
	}

	before = len(a.writes(t))
	d.want(t, 200, "PATCH", "agents/leaver", apiv1.UpdateAgent{Labels: map[string]string{"region": "eu"}})
	s.awaitDeployment(t, "kept", healthyAt(newer, 1))
	s.awaitDeployment(t, "pruned", healthyAt(newer, 1))
	if got := cluster.Kubectl(t, "-n", kept, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid} {.data.value}"); got != uid+" two" {
		t.Errorf("the object after the return is %q, and was %s", got, uid)
	}
	if deleted := deletions(a.writes(t)[before:]); len(deleted) > 0 {
		t.Errorf("the return caused deletions: %+v", deleted)
	}
}

// gone waits until kubectl finds nothing.
func gone(tb testing.TB, c *testkit.Cluster, args ...string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		out, err := c.TryKubectl(tb, append(args, "--ignore-not-found", "-o", "name")...)
		if err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("still there: %q, %w", out, err)
		}
		return nil
	})
}
