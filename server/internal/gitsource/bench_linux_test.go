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

// BenchmarkLargeRepositoryMemory measures the memory of BenchmarkLargeRepository: of the largest git process of a
// fetch, cold and after one more commit, and the allocations of this process.
func BenchmarkLargeRepositoryMemory(b *testing.B) {
	n := repositorySize(b)
	server, repo := startServer(b)
	_, err := repo.Grow(b.Context(), n, n)
	check(b, err)
	check(b, repo.Push(b.Context()))
	conn, peak := measureGit(b)
	for _, mode := range []struct {
		name  string
		whole int64
	}{{"whole", 0}, {"partial", 1}} {
		open := func(b *testing.B) *gitsource.Manager {
			path := os.Getenv("PATH")
			b.Setenv("PATH", conn+":"+path)
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

// measureGit creates a folder with a git script that records the peak memory of git and its helpers. A killed
// process, such as the one that reads objects, records nothing. peak returns the maximum in MiB since the last
// call.
func measureGit(b *testing.B) (dir string, peak func(*testing.B) float64) {
	b.Helper()
	git, err := exec.LookPath("git")
	check(b, err)
	self, err := os.Executable()
	check(b, err)
	dir = b.TempDir()
	out := filepath.Join(dir, "peaks")
	// A shell is small. The memory of a program before it became git counts too.
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

// TestMain is also the program that the script runs after git, see measureGit.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == measuring {
		os.Exit(recordPeak(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// recordPeak appends the peak memory of the children of this process, in KiB, to a file and returns the exit
// code.
func recordPeak(out, code string) int {
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
