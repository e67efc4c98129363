package gitsource_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

func startServer(t testing.TB) (*gitserver.Server, *gitserver.Repo) {
	t.Helper()
	server, err := gitserver.Start(filepath.Join(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, createRepo(t, server, "app")
}

func createRepo(t testing.TB, server *gitserver.Server, name string) *gitserver.Repo {
	t.Helper()
	repo, err := server.CreateRepo(t.Context(), name, filepath.Join(t.TempDir(), "clone"))
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func newManager(t testing.TB) *gitsource.Manager {
	t.Helper()
	return managerIn(t, filepath.Join(t.TempDir(), "mirrors"))
}

func managerIn(t testing.TB, dir string) *gitsource.Manager {
	t.Helper()
	m, err := gitsource.New(gitsource.Config{Dir: dir, Allow: []string{"http", "file", "https", "ssh"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// commit creates a commit on the branch of repo and pushes it.
func commit(t testing.TB, repo *gitserver.Repo, files map[string]string) string {
	t.Helper()
	id, err := repo.CommitAndPush(t.Context(), files, "a commit")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// fetchOne fetches one revision and returns its commit.
func fetchOne(t testing.TB, m *gitsource.Manager, url, revision string) string {
	t.Helper()
	refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{revision})
	if err != nil {
		t.Fatal(err)
	}
	if refs[revision].Err != nil {
		t.Fatal(refs[revision].Err)
	}
	return refs[revision].Commit
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
