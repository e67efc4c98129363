package gitsource

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// A mirror whose making was cut short, by a timeout or with the whole server, is made anew: git writes HEAD before
// what else a repository needs.
func TestAMirrorThatWasHalfMadeIsMadeAnew(t *testing.T) {
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

// mirrorOf makes a repository, and a manager with a mirror of it that has not been fetched into.
func mirrorOf(t *testing.T, cfg Config) (m *Manager, repo *gitserver.Repo, access Access, u *use) {
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
	u, err = m.use(access)
	must(err)
	m.end(u.mirror)
	return m, repo, access, u
}
