package gitsource_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// BenchmarkFetch fetches one small commit of a repository of 1,000 applications over HTTP on loopback. bare is
// git alone, as the floor.
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

// BenchmarkKeys computes the render keys of 1,000 applications at a new commit that changes one of them.
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
			if _, err := render.Key(b.Context(), tree, render.Request{Path: fmt.Sprintf("apps/%04d", app)}, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// repositorySize is the number of files, and of commits, of BenchmarkLargeRepository.
func repositorySize(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("KEDGE_BENCH_GROWN"), "5000"))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkLargeRepository reads a repository of 5,000 files and as many commits over HTTP on loopback: cold into
// an empty mirror, warm after one more commit, idle without a change, and an older commit by id. Each also reads
// one folder of ten files. whole is how repositories of this size are read, partial how larger ones are read, and
// full is git alone with the whole history, for comparison. It also reports the bytes on disk.
func BenchmarkLargeRepository(b *testing.B) {
	n := repositorySize(b)
	server, repo := startServer(b)
	tip, err := repo.Grow(b.Context(), n, n)
	check(b, err)
	check(b, repo.Push(b.Context()))
	url := server.URL("app")
	old := run(b, "--git-dir="+server.Dir("app"), "rev-parse", tip+"~"+strconv.Itoa(n/2))
	for _, mode := range []struct {
		name  string
		whole int64
	}{{"whole", 0}, {"partial", 1}} {
		open := func(b *testing.B) (*gitsource.Manager, string) {
			dir := filepath.Join(b.TempDir(), "mirrors")
			m, err := gitsource.New(gitsource.Config{Dir: dir, Allow: []string{"http", "file"}, MaxWholeBytes: mode.whole})
			check(b, err)
			b.Cleanup(func() { check(b, m.Close()) })
			return m, dir
		}
		read := func(b *testing.B, m *gitsource.Manager, revision string) string {
			commit := fetchOne(b, m, url, revision)
			for i := range 10 {
				readFile(b, m, url, commit, "apps/0007", fmt.Sprintf("manifest-%d.yaml", i))
			}
			return commit
		}
		b.Run(mode.name+"/cold", func(b *testing.B) {
			var size int64
			for b.Loop() {
				m, dir := open(b)
				read(b, m, "main")
				size = diskUsage(b, dir)
			}
			b.ReportMetric(float64(size), "disk-bytes")
		})
		m, _ := open(b)
		read(b, m, "main")
		b.Run(mode.name+"/warm", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				want := commit(b, repo, map[string]string{"apps/0007/manifest-3.yaml": fmt.Sprintf("# %s %d\n", mode.name, i)})
				b.StartTimer()
				if got := read(b, m, "main"); got != want {
					b.Fatalf("got %s, want %s", got, want)
				}
			}
		})
		b.Run(mode.name+"/idle", func(b *testing.B) {
			for b.Loop() {
				fetchOne(b, m, url, "main")
			}
		})
		b.Run(mode.name+"/older", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m, _ := open(b)
				fetchOne(b, m, url, "main")
				b.StartTimer()
				read(b, m, old)
			}
		})
	}
	b.Run("full/cold", func(b *testing.B) {
		var size int64
		for b.Loop() {
			dir := filepath.Join(b.TempDir(), "full.git")
			run(b, "init", "--quiet", "--bare", dir)
			run(b, "--git-dir="+dir, "-c", "transfer.fsckObjects=true", "-c", "pack.threads=1", "fetch", "--quiet", url, "+refs/heads/main:refs/heads/main")
			size = diskUsage(b, dir)
		}
		b.ReportMetric(float64(size), "disk-bytes")
	})
}

func diskUsage(b *testing.B, dir string) (size int64) {
	b.Helper()
	check(b, filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}))
	return size
}
