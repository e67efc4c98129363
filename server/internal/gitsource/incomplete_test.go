package gitsource

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// A mirror whose creation was interrupted, by a timeout or with the server, is recreated. git writes HEAD before
// the other files of a repository.
func TestIncompleteMirrorIsRecreated(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, repo, access, u := mirrorOf(t, Config{Allow: []string{"http"}, Addresses: &egress.Policy{AllowLoopback: true}})
	commit, err := repo.CommitAndPush(t.Context(), map[string]string{"a": "1"}, "a commit")
	must(err)
	must(os.MkdirAll(u.dir, 0o700))
	must(os.WriteFile(filepath.Join(u.dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600))
	refs, err := m.Fetch(t.Context(), access, []string{"main"})
	if err != nil || refs["main"].Commit != commit {
		t.Errorf("got %+v, %v", refs, err)
	}
}

// mirrorOf creates a repository, and a manager with an empty mirror of it.
func mirrorOf(t *testing.T, cfg Config) (m *Manager, repo *gitserver.Repo, access Access, u *handle) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := gitserver.Start(filepath.Join(t.TempDir(), "server"))
	must(err)
	t.Cleanup(func() { must(server.Close()) })
	repo, err = server.CreateRepo(t.Context(), "app", filepath.Join(t.TempDir(), "clone"))
	must(err)
	cfg.Dir = t.TempDir()
	m, err = New(cfg)
	must(err)
	t.Cleanup(func() { must(m.Close()) })
	access = Access{URL: server.URL("app")}
	u, err = m.acquire(access)
	must(err)
	m.release(u.mirror)
	return m, repo, access, u
}
