package gitsource

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// diskBench is a manager with small budgets, and repositories of about 800 KiB each.
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

// has says which repositories of an owner there are mirrors of.
func (b *diskBench) has(owner string) string {
	var out []string
	for i, url := range b.urls {
		if _, _, err := readNotes(filepath.Join(b.cfg.Dir, mirrorKey(owner, url)+mirrorSuffix)); err == nil {
			out = append(out, fmt.Sprint(i))
		}
	}
	return strings.Join(out, " ")
}

// covers: T11
func TestMirrorsKeepWithinTheirBudgets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   Config
		limit error
		flag  string
		other string // who fetches too much; "" for the same owner
		left  string // of the owner, when others may be deleted
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
			// Nothing is old enough to be deleted.
			var remote *RemoteError
			err := b.fetch(t, late, 2)
			if !errors.As(err, &remote) || !errors.Is(err, c.limit) || !strings.Contains(remote.Problem, c.flag) {
				t.Fatalf("got error %v, want one that names %s", err, c.flag)
			}
			if got := b.has("acme"); got != "0 1" {
				t.Errorf("there are mirrors of %q", got)
			}
			// What was not used for the longest time goes, and not what is in use.
			b.evictIdle = 0
			u, err := b.use(Access{Owner: "acme", URL: b.urls[0]})
			if err != nil {
				t.Fatal(err)
			}
			defer b.end(u.mirror)
			if err := b.fetch(t, late, 2); err != nil {
				t.Fatal(err)
			}
			if got := b.has("acme"); got != c.left {
				t.Errorf("there are mirrors of %q, want %q", got, c.left)
			}
		})
	}
}

// covers: T11
func TestTheBudgetOfOneTenantIsNotAnothers(t *testing.T) {
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

// TestWhatWasThereCounts restarts with other budgets than those that the mirrors were made with.
//
// covers: T11
func TestWhatWasThereCounts(t *testing.T) {
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
		t.Errorf("there are mirrors of %q, want one beside 3", got)
	}
}

// covers: T11
func TestNothingIsFetchedOntoAFullDisk(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{MinFreeBytes: 1 << 60})
	err := b.fetch(t, "acme", 0)
	var remote *RemoteError
	if !errors.As(err, &remote) || !errors.Is(err, errFreeDisk) || !strings.Contains(remote.Problem, "--git-min-free") {
		t.Errorf("got error %v", err)
	}
	if got := b.has("acme"); got != "" {
		t.Errorf("there are mirrors of %q", got)
	}
}

// TestSubmodulesThatAreNotThereLeaveNothing names others each time, as a repository can with every commit.
//
// covers: T11
func TestSubmodulesThatAreNotThereLeaveNothing(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{})
	for i := range 3 {
		url := "file://" + filepath.Join(t.TempDir(), fmt.Sprintf("nowhere-%d.git", i))
		if _, err := b.Fetch(t.Context(), Access{Owner: "acme", URL: url, parent: b.urls[0]}, []string{"main"}); err == nil {
			t.Fatal("there should be nothing to fetch")
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mirrors) != 0 {
		t.Errorf("%d mirrors are remembered", len(b.mirrors))
	}
}

// Fetches that run at the same time do not each have all the room there is: the one that began first has it.
//
// covers: T11
func TestFetchesInFlightCountForTheBudget(t *testing.T) {
	t.Parallel()
	b := newDiskBench(t, Config{MaxTotalBytes: 1_800_000})
	first, err := b.use(Access{Owner: "acme", URL: b.urls[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer b.end(first.mirror)
	if err := b.makeRoom(t.Context(), first.mirror); err != nil {
		t.Fatal(err)
	}
	first.grown(1_000_000) // and goes on
	if err := b.fetch(t, "beta", 1); !errors.Is(err, errTotalDisk) {
		t.Errorf("beside a fetch that has most of the room: got error %v, want one of the disk", err)
	}
	// One that began later takes nothing from it.
	second, err := b.use(Access{Owner: "beta", URL: b.urls[2]})
	if err != nil {
		t.Fatal(err)
	}
	defer b.end(second.mirror)
	b.cfg.MaxMirrorBytes = 700_000 // all that it wants at first
	if err := b.makeRoom(t.Context(), second.mirror); err != nil {
		t.Fatal(err)
	}
	if now := second.grown(700_000); now.bytes != 700_000 {
		t.Errorf("the second has %d bytes", now.bytes)
	}
	b.cfg.MaxMirrorBytes = 1_500_000
	if now := second.grown(700_000); now.bytes != 800_000 || !errors.Is(now.limit, errTotalDisk) {
		t.Errorf("the second has %d bytes (%v), want what the first has left", now.bytes, now.limit)
	}
	if now := first.grown(1_100_000); now.bytes != 1_500_000 {
		t.Errorf("the first has %d bytes, want all that one mirror may have", now.bytes)
	}
	b.weigh(first.mirror) // it has failed, and left nothing
	b.cfg.MaxMirrorBytes = 1 << 20
	b.weigh(second.mirror)
	if err := b.fetch(t, "beta", 3); err != nil {
		t.Errorf("after that: %v", err)
	}
}
