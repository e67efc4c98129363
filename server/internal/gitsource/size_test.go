package gitsource

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// noise returns n bytes that do not compress.
func noise(n int) string {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return string(out)
}

func TestTooLargeRepositoryIsRejected(t *testing.T) {
	t.Parallel()
	remote := filepath.Join(t.TempDir(), "remote.git")
	repo, err := gitserver.NewRepo(t.Context(), remote, "")
	if err != nil {
		t.Fatal(err)
	}
	commit := func(files map[string]string) string {
		t.Helper()
		id, err := repo.Commit(t.Context(), files, "a commit")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	small := commit(map[string]string{"a": "small"})
	m, err := New(Config{Dir: t.TempDir(), Allow: []string{"file"}, MaxMirrorBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	url := "file://" + remote
	fetch := func() error {
		_, err := m.Fetch(t.Context(), Access{URL: url}, []string{"main"})
		return err
	}
	if err := fetch(); err != nil {
		t.Fatal(err)
	}
	commit(map[string]string{"big": noise(3 << 20)})
	var remoteErr *RemoteError
	const want = "the repository is larger than 1 MiB, the limit of this server"
	if err := fetch(); !errors.As(err, &remoteErr) || remoteErr.Problem != want {
		t.Errorf("got %v", err)
	}
	// For a while the server does not fetch it again.
	if err := os.Rename(remote, remote+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := fetch(); !errors.As(err, &remoteErr) || remoteErr.Problem != want {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(remote+".elsewhere", remote); err != nil {
		t.Fatal(err)
	}
	u, err := m.acquire(Access{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer m.release(u.mirror)
	if size := folderSize(u.dir); size > 1<<20 {
		t.Errorf("the mirror has %d bytes", size)
	}
	// After the remote is repaired, the next fetch succeeds.
	if err := repo.Reset(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	u.rejection = &rejection{}
	if err := fetch(); err != nil {
		t.Errorf("after it was made smaller: %v", err)
	}
}

func TestGarbageIsRemovedWhenTheLimitIsReached(t *testing.T) {
	t.Parallel()
	m, r, commits := fetchedRepo(t, 2, 100)
	r.cfg.MaxMirrorBytes = 1 << 20
	if err := os.WriteFile(filepath.Join(r.dir, "objects", "pack", "garbage"), []byte(noise(2<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	refs, err := m.Fetch(t.Context(), Access{URL: r.url}, []string{"main"})
	if err != nil || refs["main"].Commit != commits[1] {
		t.Errorf("got %v, %v", refs, err)
	}
	if size := folderSize(r.dir); size > 1<<20 {
		t.Errorf("the mirror has %d bytes", size)
	}
}

func TestSizeLimitCancelsTheContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	watched, stop := watchSize(t.Context(), time.Millisecond, func() error {
		if folderSize(dir) > 1000 {
			return errTooLarge
		}
		return nil
	})
	defer stop()
	if err := os.WriteFile(filepath.Join(dir, "pack"), make([]byte, 1001), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-watched.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context did not end")
	}
	if cause := context.Cause(watched); !errors.Is(cause, errTooLarge) {
		t.Errorf("the context ended with %v", cause)
	}
}

func TestSizeText(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]string{4 << 30: "4 GiB", 1536 << 20: "1536 MiB", 5000: "5000 bytes"} {
		if got := sizeText(size); got != want {
			t.Errorf("%d is %q, want %q", size, got, want)
		}
	}
}
