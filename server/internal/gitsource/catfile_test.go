package gitsource

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// openReader returns the reader of a repository that contains one file, and the object of the file.
func openReader(t *testing.T) (*catFile, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo.git")
	repo, err := gitserver.NewRepo(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), map[string]string{"a": "content"}, "a commit"); err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cat := newCatFile(m.readers, m.git, dir, func() {})
	t.Cleanup(cat.close)
	found, err := cat.info(t.Context(), "refs/heads/main:a")
	if err != nil {
		t.Fatal(err)
	}
	return cat, found.id
}

func TestReaderIsStartedAgainAfterItDied(t *testing.T) {
	t.Parallel()
	cat, id := openReader(t)
	for _, reason := range []string{"killed", "closed"} {
		if reason == "killed" {
			if err := cat.cmd.Cancel(); err != nil {
				t.Fatal(err)
			}
		} else {
			cat.close()
		}
		_, content, err := cat.read(t.Context(), id, 100)
		if err != nil || string(content) != "content" {
			t.Errorf("after it was %s: %q, %v", reason, content, err)
		}
	}
}

func TestReaderSurvivesErrorResponses(t *testing.T) {
	t.Parallel()
	cat, id := openReader(t)
	first := cat.cmd
	if _, _, err := cat.read(t.Context(), "refs/heads/none", 100); !errors.Is(err, errNoObject) {
		t.Errorf("an unknown name returned %v", err)
	}
	if _, err := cat.info(t.Context(), "two\nlines"); !errors.Is(err, errNoObject) {
		t.Errorf("a name of two lines returned %v", err)
	}
	if _, _, err := cat.read(t.Context(), id, 3); !errors.Is(err, filetree.ErrTooBig) {
		t.Errorf("a file beyond the limit returned %v", err)
	}
	if _, content, err := cat.read(t.Context(), id, 100); err != nil || string(content) != "content" {
		t.Errorf("after errors: %q, %v", content, err)
	}
	if cat.cmd != first {
		t.Error("an error in a response stopped the process")
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cat, id := openReader(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := cat.read(ctx, id, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read returned %v", err)
	}
	if _, content, err := cat.read(t.Context(), id, 100); err != nil || string(content) != "content" {
		t.Errorf("the next caller got %q, %v", content, err)
	}
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a\x0001234567890123456789"))
	f.Add([]byte("40000 dir\x0001234567890123456789120000 l\x0001234567890123456789"))
	f.Add([]byte("100644 ../x\x0001234567890123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseTree(data)
		if err != nil {
			return
		}
		for i, e := range entries {
			if e.Name == "" || e.Name == ".." || !isCommit(e.ID) {
				t.Errorf("entry %d is %+v", i, e)
			}
			if i > 0 && entries[i-1].Name > e.Name {
				t.Errorf("%q is sorted before %q", entries[i-1].Name, e.Name)
			}
		}
	})
}

func TestTooLongNamesAreRejected(t *testing.T) {
	t.Parallel()
	for length, fine := range map[int]bool{255: true, 256: false, 4 << 20: false} {
		_, err := parseTree([]byte("100644 " + strings.Repeat("a", length) + "\x0001234567890123456789"))
		if user := new(filetree.Error); (err == nil) != fine || !fine && !errors.As(err, &user) {
			t.Errorf("a name of %d bytes: %v", length, err)
		}
	}
}

func TestTreeCacheCountsEntries(t *testing.T) {
	t.Parallel()
	c := newTreeCache(10)
	entries := make([]filetree.Entry, 4)
	c.Put("a", entries)
	c.Put("b", entries)
	c.Get("a")
	c.Put("c", entries)
	for id, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, got := c.Get(id); got != want {
			t.Errorf("%s is cached: %t, want %t", id, got, want)
		}
	}
}
