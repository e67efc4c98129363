package gitsource

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// diskBench is a manager with small limits, and repositories of about 800 KiB each.
type diskBench struct {
	*Manager
	urls []string
}

const diskRepo = 800 << 10

func newDiskBench(t *testing.T, cfg Config) *diskBench {
	t.Helper()
	cfg.Dir, cfg.Allow, cfg.MaxMirrorBytes = t.TempDir(), []string{"file"}, 1<<20
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	b := &diskBench{Manager: m}
	for i := range 4 {
		dir := filepath.Join(t.TempDir(), "remote.git")
		repo, err := gitserver.NewRepo(t.Context(), dir, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(t.Context(), map[string]string{"file": noise(diskRepo + i)}, "a commit"); err != nil {
			t.Fatal(err)
		}
		b.urls = append(b.urls, "file://"+dir)
	}
	return b
}

func (b *diskBench) fetch(t *testing.T, owner string, repo int) error {
	t.Helper()
	_, err := b.Fetch(t.Context(), Access{Owner: owner, URL: b.urls[repo]}, []string{"main"})
	return err
}

// has returns the repositories of an owner that have mirrors.
func (b *diskBench) has(owner string) string {
	var out []string
	for i, url := range b.urls {
		if _, _, err := readMetadata(filepath.Join(b.cfg.Dir, mirrorKey(owner, url)+mirrorSuffix)); err == nil {
			out = append(out, fmt.Sprint(i))
		}
	}
	return strings.Join(out, " ")
}

// covers: T11
func TestMirrorsStayWithinDiskLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   Config
		limit error
		flag  string
		other string // the owner that exceeds the limit; "" for the same owner
		left  string // the mirrors of the owner after eviction
	}{
		"of a tenant":   {cfg: Config{MaxOwnerBytes: 2_600_000}, limit: errOwnerDisk, flag: "--git-tenant-disk", left: "0 2"},
		"of all":        {cfg: Config{MaxTotalBytes: 2_600_000}, limit: errTotalDisk, flag: "--git-disk", left: "0 2"},
		"of all, other": {cfg: Config{MaxTotalBytes: 2_600_000}, limit: errTotalDisk, flag: "--git-disk", other: "beta", left: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDiskBench(t, c.cfg)
			for _, repo := range []int{0, 1} {
				if err := b.fetch(t, "acme", repo); err != nil {
					t.Fatal(err)
				}
			}
			late := c.other
			if late == "" {
				late = "acme"
			}
			// No mirror was unused for long enough.
			var remote *RemoteError
			err := b.fetch(t, late, 2)
			if !errors.As(err, &remote) || !errors.Is(err, c.limit) || !strings.Contains(remote.Problem, c.flag) {
				t.Fatalf("got error %v, want one that names %s", err, c.flag)
			}
			if got := b.has("acme"); got != "0 1" {
				t.Errorf("repositories with mirrors: %q", got)
			}
			// The least recently used mirror is evicted, but not one in use.
			b.evictIdle = 0
			u, err := b.acquire(Access{Owner: "acme", URL: b.urls[0]})
			if err != nil {
				t.Fatal(err)
			}
			defer b.release(u.mirror)
			if err := b.fetch(t, late, 2); err != nil {
				t.Fatal(err)
			}
			if got := b.has("acme"); got != c.left {
				t.Errorf("repositories with mirrors: %q, want %q", got, c.left)
			}
		})
	}
}

// covers: T11
func TestDiskLimitOfATenantDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{MaxOwnerBytes: 2_600_000})
	for _, owner := range []string{"acme", "beta", "gamma"} {
		for _, repo := range []int{0, 1} {
			if err := b.fetch(t, owner, repo); err != nil {
				t.Errorf("%s: %v", owner, err)
			}
		}
	}
}

// TestExistingMirrorsCount restarts with other limits than those that the mirrors were created with.
//
// covers: T11
func TestExistingMirrorsCount(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{})
	for repo := range 3 {
		if err := b.fetch(t, "acme", repo); err != nil {
			t.Fatal(err)
		}
	}
	cfg := b.cfg
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.MaxTotalBytes = 1_900_000
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	m.evictIdle = 0
	again := &diskBench{Manager: m, urls: b.urls}
	if err := again.fetch(t, "acme", 3); err != nil {
		t.Fatal(err)
	}
	if got := again.has("acme"); len(strings.Fields(got)) != 2 || !strings.HasSuffix(got, "3") {
		t.Errorf("repositories with mirrors: %q, want 3 and one other", got)
	}
}

// covers: T11
func TestFullDiskPreventsFetches(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{MinFreeBytes: 1 << 60})
	err := b.fetch(t, "acme", 0)
	var remote *RemoteError
	if !errors.As(err, &remote) || !errors.Is(err, errFreeDisk) || !strings.Contains(remote.Problem, "--git-min-free") {
		t.Errorf("got error %v", err)
	}
	if got := b.has("acme"); got != "" {
		t.Errorf("repositories with mirrors: %q", got)
	}
}

// TestUnreadableSubmodulesLeaveNoMirror fetches another submodule each time, because every commit can refer to
// other submodules.
//
// covers: T11
func TestUnreadableSubmodulesLeaveNoMirror(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{})
	for i := range 3 {
		url := "file://" + filepath.Join(t.TempDir(), fmt.Sprintf("nowhere-%d.git", i))
		if _, err := b.Fetch(t.Context(), Access{Owner: "acme", URL: url, parent: b.urls[0]}, []string{"main"}); err == nil {
			t.Fatal("the fetch of a missing repository succeeded")
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mirrors) != 0 {
		t.Errorf("%d mirrors are in memory", len(b.mirrors))
	}
}

// Concurrent fetches share the available space. The one that started first has priority.
//
// covers: T11
func TestConcurrentFetchesShareTheDiskLimit(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{MaxTotalBytes: 1_800_000})
	first, err := b.acquire(Access{Owner: "acme", URL: b.urls[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer b.release(first.mirror)
	if err := b.reserveSpace(t.Context(), first.mirror); err != nil {
		t.Fatal(err)
	}
	first.reportSize(1_000_000) // it continues
	if err := b.fetch(t, "beta", 1); !errors.Is(err, errTotalDisk) {
		t.Errorf("during a fetch that uses most of the space: got error %v, want a limit of the disk", err)
	}
	// A later fetch takes no space from it.
	second, err := b.acquire(Access{Owner: "beta", URL: b.urls[2]})
	if err != nil {
		t.Fatal(err)
	}
	defer b.release(second.mirror)
	b.cfg.MaxMirrorBytes = 700_000 // its whole reservation
	if err := b.reserveSpace(t.Context(), second.mirror); err != nil {
		t.Fatal(err)
	}
	if now := second.reportSize(700_000); now.bytes != 700_000 {
		t.Errorf("the limit of the second is %d bytes", now.bytes)
	}
	b.cfg.MaxMirrorBytes = 1_500_000
	if now := second.reportSize(700_000); now.bytes != 800_000 || !errors.Is(now.limit, errTotalDisk) {
		t.Errorf("the limit of the second is %d bytes (%v), want the space that the first leaves", now.bytes, now.limit)
	}
	if now := first.reportSize(1_100_000); now.bytes != 1_500_000 {
		t.Errorf("the limit of the first is %d bytes, want the limit of one mirror", now.bytes)
	}
	b.updateDiskUsage(first.mirror) // it failed and left no files
	b.cfg.MaxMirrorBytes = 1 << 20
	b.updateDiskUsage(second.mirror)
	if err := b.fetch(t, "beta", 3); err != nil {
		t.Errorf("after the first fetch failed: %v", err)
	}
}
