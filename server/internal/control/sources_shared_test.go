package control_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// sharedGit records whether tenants share the server.
type sharedGit struct {
	*gitsource.Manager
	told chan bool
}

func (g *sharedGit) SetShared(shared bool) { g.told <- shared }

func TestGitIsToldWhetherTenantsShareTheServer(t *testing.T) {
	t.Parallel()
	st := newSQLite(t).open(t)
	t.Cleanup(func() { _ = st.Close() })
	manager, err := gitsource.New(gitsource.Config{Dir: filepath.Join(t.TempDir(), "git")})
	ok(t, err)
	t.Cleanup(func() { _ = manager.Close() })
	git := &sharedGit{Manager: manager, told: make(chan bool, 100)}
	s, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, st, git)
	ok(t, err)
	_, err = s.Bootstrap(t.Context(), false)
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Work(ctx) }()
	await := func(want bool) {
		t.Helper()
		for <-git.told != want {
		}
	}
	await(false)
	_, err = s.CreateTenant(ctx, admin, control.CreateTenant{Name: "second"})
	ok(t, err)
	await(true)
	ok(t, s.DeleteTenant(ctx, admin, "second", control.Match{}))
	await(false)
	cancel()
	ok(t, <-done)
}
