package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// backup writes a copy of the server's database while it runs.
func (s *testServer) backup(tb testing.TB) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "backup")
	if err := rig.Admin(tb.Context(), binary(tb, "kedge-server"), "backup", "--data-dir", s.dir, "--out", file); err != nil {
		tb.Fatal(err)
	}
	return file
}

// covers: O5, A6
func TestRestoringAnOldBackupDeletesNothing(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "rewound"})
	repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", "1"), "late/b.yaml": configMap(ns, "cm-late", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	s.awaitDeployment(t, "app", healthyAt(repo.Head(), 1))
	old := s.backup(t)

	// After the backup: more objects, one removed, and a deployment that the backup does not contain.
	repo.webhooks(t, s)
	newest := repo.push(t, map[string]string{"app/b.yaml": configMap(ns, "cm-b", "2"), "app/a.yaml": configMap(ns, "cm-a", "2")})
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	s.deploy(t, apiv1.CreateDeployment{Name: "late", Source: apiv1.Source{RepoURL: repo.url, Path: "late"}})
	s.awaitDeployment(t, "late", healthyAt(newest, 1))
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	repo.server.SetDown(true) // so that the state of the restored server is visible
	before := len(a.writes(t))
	dir := t.TempDir()
	if err := rig.Admin(t.Context(), binary(t, "kedge-server"), "restore", "--data-dir", dir, "--in", old); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(s.dir, "keys"), filepath.Join(dir, "keys"))
	s.dir = dir
	s.restart(t)
	a.awaitConnected(t, s)
	s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
		if len(v.Targets) != 1 || v.Targets[0].Sync != "Rewound" {
			return errors.New("the target of an agent that is ahead is not Rewound")
		}
		return nil
	})
	if out, _ := s.kedge(t, "status", "app"); !strings.Contains(out, "Rewound") {
		t.Errorf("kedge status does not say that the server is behind:\n%s", out)
	}
	if got := fmt.Sprint(values(t, cluster, ns)); got != "map[cm-a:2 cm-b:2 cm-late:1]" {
		t.Errorf("a server that is behind has changed the cluster: %s", got)
	}

	// Git is back: the server recovers, and objects that the newest commit lacks are held, not deleted.
	repo.server.SetDown(false)
	repo.webhooks(t, s)
	without := repo.push(t, map[string]string{"app/b.yaml": gitserver.Deleted, "app/a.yaml": configMap(ns, "cm-a", "3")})
	s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
		if v.Commit != without || v.Targets[0].Commit != without || v.Targets[0].Sync == "Rewound" || v.Targets[0].Sync == "Pending" || v.Targets[0].Sync == "Syncing" {
			return errors.New("not recovered")
		}
		return nil
	})
	shows(t, cluster, "3", "-n", ns, "get", "configmap", "cm-a", "-o", "jsonpath={.data.value}")
	if deleted := deletions(a.writes(t)[before:]); slices.ContainsFunc(deleted, func(r testkit.Request) bool { return r.Namespace == ns }) {
		t.Errorf("restoring an old backup deleted %+v", deleted)
	}
	if got := values(t, cluster, ns); got["cm-b"] != "2" || got["cm-late"] != "1" {
		t.Errorf("after the recovery the cluster holds %v", got)
	}
	// The lost deployment is created again and takes over its objects.
	s.deploy(t, apiv1.CreateDeployment{Name: "late", Source: apiv1.Source{RepoURL: repo.url, Path: "late"}})
	s.awaitDeployment(t, "late", healthyAt(without, 1))
	if got := values(t, cluster, ns); got["cm-late"] != "1" {
		t.Errorf("the deployment that was made again lost its object: %v", got)
	}
}

// covers: O5, A6
func TestRestoredTargetsGoOnByThemselves(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "returned"})
	commit := repo.push(t, map[string]string{"gone/a.yaml": configMap(ns, "cm-gone", "1"), "again/b.yaml": configMap(ns, "cm-again", "1")})
	ids := map[string]string{}
	create := func(name string) {
		t.Helper()
		s.deploy(t, apiv1.CreateDeployment{Name: name, Source: apiv1.Source{RepoURL: repo.url, Path: name}})
		ids[name] = s.awaitDeployment(t, name, healthyAt(commit, 1)).Targets[0].ID
	}
	create("gone")
	create("again")
	before := maps.Clone(ids)
	old := s.backup(t)

	// After the backup both are deleted, and one of them is created again: it is another target now.
	for _, name := range []string{"gone", "again"} {
		if out, err := s.kedge(t, "deploy", "delete", name, "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		gone(t, cluster, "-n", ns, "get", "configmap", "cm-"+name)
	}
	create("again")
	if ids["again"] == before["again"] {
		t.Fatal("the deployment that was made again has its old target")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	writes := len(a.writes(t))
	dir := t.TempDir()
	if err := rig.Admin(t.Context(), binary(t, "kedge-server"), "restore", "--data-dir", dir, "--in", old); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(s.dir, "keys"), filepath.Join(dir, "keys"))
	s.dir = dir
	s.restart(t)
	a.awaitConnected(t, s)
	for _, name := range []string{"gone", "again"} {
		shows(t, cluster, "1", "-n", ns, "get", "configmap", "cm-"+name, "-o", "jsonpath={.data.value}")
		v := s.awaitDeployment(t, name, healthyAt(commit, 1))
		if v.Targets[0].ID != before[name] {
			t.Errorf("%s has target %s, want %s, which the backup knows", name, v.Targets[0].ID, before[name])
		}
		shows(t, cluster, before[name], "-n", ns, "get", "configmap", "cm-"+name, "-o", `jsonpath={.metadata.labels.kedge\.dev/target}`)
	}
	if deleted := deletions(a.writes(t)[writes:]); slices.ContainsFunc(deleted, func(r testkit.Request) bool { return r.Namespace == ns }) {
		t.Errorf("restoring an old backup deleted %+v", deleted)
	}
}

// covers: O5
func TestServerMovesFromSQLiteToPostgreSQLUnderItsAgents(t *testing.T) {
	t.Parallel()
	skipShort(t)
	s := startServer(t)
	d := s.tenantClient(t, "acme")
	repo, commit := pushTo(t, "one")
	repo.server.Protect(repo.name, map[string]string{"robot": "the-password"})
	f := newLightFleet(t, hostPort(s.URL))
	a := f.enroll(t, d, apiv1.EnrollAgent{Name: "prod"})
	d.want(t, 201, "POST", "credentials", apiv1.CreateCredential{Name: "git", Kind: "https", Username: "robot", Secret: "the-password"})
	d.want(t, 201, "POST", "repositories", apiv1.CreateRepository{URL: repo.url, Credential: "git"})
	d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	v := d.await(t, "web", healthyAt(commit, 1))
	viewer := d.role(t, "viewer")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	moved := s.backup(t)
	db := newDatabase(t)
	if err := rig.Admin(t.Context(), binary(t, "kedge-server"), "restore", "--database", db.owner, "--in", moved); err != nil {
		t.Fatal(err)
	}
	told := f.told
	s.args = []string{"--database", db.url, "--key-file", filepath.Join(s.dir, "keys")}
	s.dir = t.TempDir()
	s.restart(t)
	d.Server, viewer.Server = s.Server, s.As(viewer.Token)
	a.awaitReady(t)
	after := d.await(t, "web", func(now apiv1.Deployment) error {
		if now.ID != v.ID || now.Targets[0].ID != v.Targets[0].ID {
			t.Fatalf("another deployment: %+v", now)
		}
		return healthyAt(commit, 1)(now)
	})
	if len(after.Targets[0].Objects) != len(v.Targets[0].Objects) {
		t.Errorf("the objects were lost: %+v", after.Targets[0])
	}
	viewer.want(t, 200, "GET", "deployments/web", nil)
	viewer.want(t, 403, "DELETE", "deployments/web", nil)
	// The credential can still be decrypted, and pushes are still deployed.
	second := repo.push(t, map[string]string{"cm.yaml": plainManifest("two")})
	d.look(t, repo.url)
	d.await(t, "web", healthyAt(second, 1))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told-told > 2 {
		t.Errorf("moving cost %d messages", f.told-told)
	}
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}
