package gitsource

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// hostileCommit is the size of a commit object, which git can only read as a whole. Compressed it is a thousandth
// of that.
const hostileCommit = 200 << 20

// gitIn runs git on a repository of the test.
func gitIn(t *testing.T, dir string, in io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir=" + dir, "-c", "user.name=Anna", "-c", "user.email=anna@example.com"}, args...)...)
	cmd.Stdin = in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v: %s", args[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// commitLarge sets the head of a repository to a commit with a huge message.
func commitLarge(t *testing.T, dir string, size int64) {
	t.Helper()
	git := func(in io.Reader, args ...string) string { return gitIn(t, dir, in, args...) }
	tree := git(strings.NewReader(""), "mktree")
	who := "Anna <anna@example.com> 1700000000 +0000"
	head := fmt.Sprintf("tree %s\nauthor %s\ncommitter %s\n\n", tree, who, who)
	file := filepath.Join(t.TempDir(), "commit")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, size))); err != nil {
		t.Fatal(err)
	}
	git(nil, "update-ref", "refs/heads/main", git(nil, "hash-object", "-t", "commit", "-w", file))
}

// letters is an endless reader.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// TestHostileCommitIsRejected serves a small pack with one huge commit, and measures the memory of git.
//
// covers: T11
func TestHostileCommitIsRejected(t *testing.T) {
	t.Parallel()
	server, err := gitserver.Start(filepath.Join(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.Create("app"); err != nil {
		t.Fatal(err)
	}
	commitLarge(t, server.Dir("app"), hostileCommit)
	const memory = 64<<20 + 4096 // no other process has this limit
	cfg := Config{Dir: t.TempDir(), Allow: []string{"http", "file"}, Memory: memory}
	fetch := func() error {
		t.Helper()
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		_, err = m.Fetch(t.Context(), Access{URL: server.URL("app")}, []string{"main"})
		return err
	}
	peak := watchMemory(t, memory)
	err = fetch()
	if kib := peak(); kib == 0 || kib > 90<<10 {
		t.Errorf("a git process used %d KiB", kib)
	}
	var remote *RemoteError
	if !errors.As(err, &remote) || !errors.Is(err, errMemory) || !strings.Contains(remote.Problem, "64 MiB of memory") {
		t.Fatalf("got error %v, want one that names the limit", err)
	}
	// Readers of mirrors have another limit, which the error contains too.
	cfg.Memory = 1 << 30
	if err = fetch(); !errors.As(err, &remote) || !errors.Is(err, errMemory) || !strings.Contains(remote.Problem, "128 MiB of memory") {
		t.Errorf("with a reader of 128 MiB: got error %v", err)
	}
	cfg.Memory = memory
	if err = fetch(); !errors.Is(err, errMemory) {
		t.Errorf("with the first limit again: got error %v", err)
	}
	// A restarted server does not fetch it again.
	server.SetDown(true)
	if err = fetch(); !errors.As(err, &remote) || !strings.Contains(remote.Problem, "64 MiB of memory") {
		t.Errorf("after a restart: got error %v", err)
	}
	// With another limit it does.
	server.SetDown(false)
	cfg.Memory = 4 << 30
	if err = fetch(); err != nil {
		t.Errorf("with more memory: %v", err)
	}
}

// Over file:// the remote end is a process of this server with the same limit, so its messages about memory
// count.
//
// covers: T11
func TestHostileFolderOverFileIsRejected(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "app.git")
	gitIn(t, dir, nil, "init", "--quiet", "--bare", dir)
	blob, err := hex.DecodeString(gitIn(t, dir, strings.NewReader(""), "hash-object", "-w", "--stdin"))
	if err != nil {
		t.Fatal(err)
	}
	// The process at the remote end reads the whole folder to pack its files.
	var folder bytes.Buffer
	for i := range 2_000_000 {
		fmt.Fprintf(&folder, "100644 %012d\x00%s", i, blob)
	}
	tree := gitIn(t, dir, &folder, "hash-object", "-t", "tree", "-w", "--stdin")
	gitIn(t, dir, nil, "update-ref", "refs/heads/main", gitIn(t, dir, nil, "commit-tree", tree, "-m", "large"))
	m, err := New(Config{Dir: t.TempDir(), Allow: []string{"file"}, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	var remote *RemoteError
	if _, err = m.Fetch(t.Context(), Access{URL: "file://" + dir}, []string{"main"}); !errors.As(err, &remote) || !errors.Is(err, errMemory) {
		t.Errorf("got error %v, want one that names the limit", err)
	}
}

// covers: T11
func TestGitIsKilledBeforeTheServer(t *testing.T) {
	t.Parallel()
	m, err := New(Config{Dir: t.TempDir(), Allow: []string{"file"}, Memory: 100 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for question, want := range map[string]string{
		"ulimit -d": "102400", "ulimit -v": fmt.Sprint((100<<20 + mappedMemory) >> 10), "ulimit -c": "0", "cat /proc/self/oom_score_adj": "1000",
	} {
		line := m.git.limited(m.git.shell, "-c", question)
		out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", question, got, err, want)
		}
	}
}
