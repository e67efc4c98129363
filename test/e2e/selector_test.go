package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: A6 (mistyped selector)
func TestAMistypedSelectorDeletesNothing(t *testing.T) {
	t.Parallel()
	const objects = 20
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	d := s.tenantClient(t, "default")
	d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "eu", MatchLabels: map[string]string{"region": "eu"}})
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "selected", Labels: map[string]string{"region": "eu"}})
	commit := repo.push(t, map[string]string{"app/cm.yaml": many(ns, objects, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Environment: "eu", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	before, writesBefore := uids(t, cluster, ns), len(a.writes(t))
	unharmed := func(t *testing.T) {
		t.Helper()
		if diff := cmp.Diff(before, uids(t, cluster, ns)); diff != "" {
			t.Errorf("objects were deleted (-before +after):\n%s", diff)
		}
		for _, r := range deletions(a.writes(t)[writesBefore:]) {
			if r.Namespace == ns {
				t.Errorf("the agent has sent %s %s", r.Verb, r.URI)
			}
		}
		holds(t, cluster, ns, objects, "1")
	}
	kedge := func(t *testing.T, args ...string) {
		t.Helper()
		if out, err := s.kedge(t, args...); err != nil {
			t.Fatalf("kedge %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	t.Run("labels of an environment that no agent has", func(t *testing.T) {
		kedge(t, "env", "set", "eu", "--match-labels", "region=ue")
		s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
			if len(v.Targets) != 1 || v.Targets[0].Sync != "Detached" || v.Targets[0].ObservedGeneration != v.Targets[0].Generation {
				return errors.New("the agent has not released the target")
			}
			return nil
		})
		unharmed(t)
		kedge(t, "env", "set", "eu", "--match-labels", "region=eu")
		s.awaitDeployment(t, "app", healthyAt(commit, 1))
		unharmed(t)
	})
	// An error in the source is refused, and an unchecked one is held.
	for _, mistake := range []struct{ name, path, glob, field string }{
		{"a path that does not exist", "apps", "*.yaml", "source.path"},
		{"a glob that matches nothing", "app", "*.yamll", "source.globs"},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			edit := []string{"deploy", "set", "app", "--path", mistake.path, "--glob", mistake.glob}
			if out, err := s.kedge(t, edit...); err == nil || !strings.Contains(out, mistake.field) {
				t.Errorf("it is not refused for %s: %v\n%s", mistake.field, err, out)
			}
			kedge(t, append(edit, "--no-check")...)
			s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
				if v.Sync != "Failed" || v.Pending == nil || v.Pending.Reason != "SourceNotRendered" {
					return fmt.Errorf("the edit is not held: %+v", v.Pending)
				}
				return nil
			})
			unharmed(t)
		})
	}
	kedge(t, "deploy", "set", "app", "--path", "app", "--glob", "*.yaml")
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	unharmed(t)
}
