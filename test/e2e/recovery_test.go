package e2e_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// restore restarts a stopped server with an old backup.
func (s *testServer) restore(t *testing.T, backup string) {
	t.Helper()
	dir := t.TempDir()
	if err := rig.Admin(t.Context(), binary(t, "kedge-server"), "restore", "--data-dir", dir, "--in", backup); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(s.dir, "keys"), filepath.Join(dir, "keys"))
	s.dir = dir
	s.restart(t)
}

// heldAt reports whether a deployment has reached a commit with n held deletions.
func heldAt(commit string, n int) func(apiv1.Deployment) error {
	return func(v apiv1.Deployment) error {
		if v.Commit != commit || v.Targets[0].Commit != commit || v.Targets[0].Generation != v.Targets[0].ObservedGeneration {
			return fmt.Errorf("not at commit %s yet", commit)
		}
		if v.Sync != "OutOfSync" || v.Counts.HeldPrunes != n || !strings.Contains(v.Message, "held until") {
			return fmt.Errorf("want it OutOfSync with %d held deletions", n)
		}
		return nil
	}
}

// heldUntilConfirmed pushes unrelated changes repeatedly after a recovery that missed cm-lost-*: they stay, are
// listed, and are deleted after the confirmation.
func heldUntilConfirmed(t *testing.T, s *testServer, a *testAgent, repo *testRepo, ns string) {
	t.Helper()
	before := len(a.writes(t))
	for i := range 3 {
		commit := repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", fmt.Sprint("again-", i))})
		s.awaitDeployment(t, "app", heldAt(commit, 2))
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	a.run(t)
	a.awaitConnected(t, s)
	commit := repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", "last")})
	s.awaitDeployment(t, "app", heldAt(commit, 2))
	if deleted := deletionsIn(a.writes(t)[before:], ns); len(deleted) > 0 {
		t.Fatalf("an unrelated commit deleted objects that a recovery had missed: %+v", deleted)
	}
	if got := values(t, a.cluster, ns); got["cm-lost-1"] != "1" || got["cm-lost-2"] != "1" || got["cm-a"] != "last" {
		t.Fatalf("the cluster holds %v", got)
	}
	if out, _ := s.kedge(t, "doctor"); !strings.Contains(out, "app: the deletion of 2 objects on 1 cluster waits for a confirmation") {
		t.Errorf("doctor does not name what is held:\n%s", out)
	}
	if out, err := s.kedge(t, "deploy", "prunes", "app"); err != nil || !strings.Contains(out, ns+"/cm-lost-1") || !strings.Contains(out, "recovered") {
		t.Errorf("kedge deploy prunes: %v\n%s", err, out)
	}
	if out, err := s.kedge(t, "deploy", "confirm-prune", "app", "ConfigMap "+ns+"/cm-lost-1"); err != nil {
		t.Fatalf("kedge deploy confirm-prune: %v\n%s", err, out)
	}
	gone(t, a.cluster, "-n", ns, "get", "configmap", "cm-lost-1")
	s.awaitDeployment(t, "app", heldAt(commit, 1))
	if out, err := s.kedge(t, "deploy", "confirm-prune", "app", "--all", "--count=1"); err != nil || !strings.Contains(out, "Confirmed 1 deletion") {
		t.Fatalf("kedge deploy confirm-prune --all: %v\n%s", err, out)
	}
	gone(t, a.cluster, "-n", ns, "get", "configmap", "cm-lost-2")
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
}

// covers: A6 (restored old backup: held, listed, confirmable), O5
func TestWhatARestoredBackupHasMissedIsHeldUntilConfirmed(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "restored"})
	repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	s.awaitDeployment(t, "app", healthyAt(repo.Head(), 1))
	old := s.backup(t)
	newest := repo.push(t, map[string]string{"app/b.yaml": configMap(ns, "cm-lost-1", "1"), "app/c.yaml": configMap(ns, "cm-lost-2", "1")})
	if out, err := s.kedge(t, "sync", "app", "--wait"); err != nil {
		t.Fatalf("kedge sync: %v\n%s", err, out)
	}
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	// Git has lost them too when the server is back: its history was rewritten, or the commits were reverted.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	without := repo.push(t, map[string]string{
		"app/a.yaml": configMap(ns, "cm-a", "2"), "app/b.yaml": gitserver.Deleted, "app/c.yaml": gitserver.Deleted})
	s.restore(t, old)
	a.awaitConnected(t, s)
	repo.webhooks(t, s)
	s.awaitDeployment(t, "app", heldAt(without, 2))
	heldUntilConfirmed(t, s, a, repo, ns)
}

// covers: A6 (agent rejoin: held, listed, confirmable)
func TestWhatAReenrolledAgentHasMissedIsHeldUntilConfirmed(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "rejoined"})
	repo.push(t, map[string]string{
		"app/a.yaml": configMap(ns, "cm-a", "1"), "app/b.yaml": configMap(ns, "cm-lost-1", "1"), "app/c.yaml": configMap(ns, "cm-lost-2", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	s.awaitDeployment(t, "app", healthyAt(repo.Head(), 1))
	repo.webhooks(t, s)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := s.kedge(t, "agent", "delete", "rejoined"); err != nil {
		t.Fatalf("kedge agent delete: %v\n%s", err, out)
	}
	without := repo.push(t, map[string]string{"app/b.yaml": gitserver.Deleted, "app/c.yaml": gitserver.Deleted})
	a = enroll(t, s, cluster, apiv1.EnrollAgent{Name: "rejoined"})
	s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
		v.Targets = slices.DeleteFunc(v.Targets, func(target apiv1.Target) bool { return !target.DetachedAt.IsZero() })
		if len(v.Targets) != 1 {
			return errors.New("not taken up again")
		}
		return heldAt(without, 2)(v)
	})
	heldUntilConfirmed(t, s, a, repo, ns)
}
