package gitsource_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// apps returns n small applications, one folder each.
func apps(n int) map[string]string {
	files := make(map[string]string, n)
	for i := range n {
		files[fmt.Sprintf("apps/%04d/app.yaml", i)] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-%d\n", i)
	}
	return files
}

// BenchmarkFetch brings one small commit of a repository of 1,000 applications over HTTP on
// loopback; bare is what git itself needs for it, as the floor.
func BenchmarkFetch(b *testing.B) {
	for _, name := range []string{"gitsource", "bare"} {
		b.Run(name, func(b *testing.B) {
			server, repo := startServer(b)
			m := newManager(b)
			url := server.URL("app")
			commit(b, repo, apps(1000))
			fetchOne(b, m, url, "main")
			dir := filepath.Join(b.TempDir(), "bare.git")
			run(b, "init", "--quiet", "--bare", dir)
			bare := []string{"--git-dir=" + dir, "fetch", "--quiet", url, "+refs/heads/main:refs/heads/main"}
			run(b, bare...)
			b.ResetTimer()
			for i := range b.N {
				b.StopTimer()
				want := commit(b, repo, map[string]string{"apps/0007/app.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-%d\n", i)})
				b.StartTimer()
				if name == "bare" {
					if err := exec.Command("git", bare...).Run(); err != nil {
						b.Fatal(err)
					}
				} else if got := fetchOne(b, m, url, "main"); got != want {
					b.Fatalf("got %s, want %s", got, want)
				}
			}
		})
	}
}

// BenchmarkKeys computes the render keys of 1,000 applications at a new commit that touches one.
func BenchmarkKeys(b *testing.B) {
	server, repo := startServer(b)
	m := newManager(b)
	url := server.URL("app")
	commit(b, repo, apps(1000))
	for i := range b.N {
		b.StopTimer()
		commit(b, repo, map[string]string{"apps/0007/app.yaml": fmt.Sprintf("# %d\n", i)})
		got := fetchOne(b, m, url, "main")
		b.StartTimer()
		tree, err := m.Tree(b.Context(), gitsource.Access{URL: url}, got)
		if err != nil {
			b.Fatal(err)
		}
		for app := range 1000 {
			if _, err := render.Key(b.Context(), tree, render.Request{Path: fmt.Sprintf("apps/%04d", app)}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
