package gitsource_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// BenchmarkLargeRepositoryMemory is the memory of BenchmarkLargeRepository: of the largest process of git that fetches, cold and
// after one more commit, beside what this process allocates.
func BenchmarkLargeRepositoryMemory(b *testing.B) {
	n := grown(b)
	server, repo := startServer(b)
	_, err := repo.Grow(b.Context(), n, n)
	check(b, err)
	check(b, repo.Push(b.Context()))
	through, peak := measureGit(b)
	for _, mode := range []struct {
		name  string
		whole int64
	}{{"whole", 0}, {"partial", 1}} {
		open := func(b *testing.B) *gitsource.Manager {
			path := os.Getenv("PATH")
			b.Setenv("PATH", through+":"+path)
			m, err := gitsource.New(gitsource.Config{Dir: b.TempDir(), Allow: []string{"http", "file"}, MaxWholeBytes: mode.whole})
			check(b, err)
			b.Setenv("PATH", path)
			b.Cleanup(func() { check(b, m.Close()) })
			return m
		}
		read := func(b *testing.B, m *gitsource.Manager) {
			tip := fetchOne(b, m, server.URL("app"), "main")
			readFile(b, m, server.URL("app"), tip, "apps/0007", "manifest-3.yaml")
		}
		b.Run(mode.name+"/cold", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read(b, open(b))
			}
			b.ReportMetric(peak(b), "git-MiB")
		})
		b.Run(mode.name+"/warm", func(b *testing.B) {
			b.ReportAllocs()
			m := open(b)
			read(b, m)
			peak(b)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				commit(b, repo, map[string]string{"apps/0007/manifest-3.yaml": fmt.Sprintf("# %s %d\n", mode.name, i)})
				b.StartTimer()
				read(b, m)
			}
			b.ReportMetric(peak(b), "git-MiB")
		})
	}
}

// measureGit makes a folder with a git that writes down how much memory git and its helpers took at most. A process that is killed, as
// the one that answers questions about objects is in the end, writes nothing. peak is the most in MiB since it was last asked.
func measureGit(b *testing.B) (dir string, peak func(*testing.B) float64) {
	b.Helper()
	git, err := exec.LookPath("git")
	check(b, err)
	self, err := os.Executable()
	check(b, err)
	dir = b.TempDir()
	out := filepath.Join(dir, "peaks")
	// A shell is small: what a program had before it became git counts as well.
	script := fmt.Sprintf("#!/bin/sh\n'%s' \"$@\"\nexec '%s' %s '%s' $?\n", git, self, measuring, out)
	check(b, os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o700))
	return dir, func(b *testing.B) (most float64) {
		b.Helper()
		text, err := os.ReadFile(out)
		check(b, err)
		check(b, os.Remove(out))
		for line := range strings.Lines(string(text)) {
			kib, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
			check(b, err)
			most = max(most, kib/1024)
		}
		return most
	}
}

const measuring = "--measure-git"

// TestMain is also what a script runs after git, see measureGit.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == measuring {
		os.Exit(notePeak(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// notePeak adds to a file how many KiB the children of this process had at most, and returns the exit code.
func notePeak(out, code string) int {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, err = fmt.Fprintln(f, usage.Maxrss)
			err = errors.Join(err, f.Close())
		}
	}
	exit, bad := strconv.Atoi(code)
	if err = errors.Join(err, bad); err != nil {
		fmt.Fprintln(os.Stderr, "measuring git:", err)
		return 1
	}
	return exit
}
