package gitsource

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// openReaders returns n readers of one repository with at most limit processes.
func openReaders(t *testing.T, n, limit int) (*readers, []*catFile) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo.git")
	repo, err := gitserver.NewRepo(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), map[string]string{"a": "content"}, "a commit"); err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Dir: t.TempDir(), MaxReaders: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	cats := make([]*catFile, n)
	for i := range cats {
		cats[i] = newCatFile(m.readers, m.git, dir, func() {})
	}
	return m.readers, cats
}

func readContent(ctx context.Context, c *catFile) error {
	_, content, err := c.read(ctx, "refs/heads/main:a", 100)
	if err == nil && string(content) != "content" {
		return fmt.Errorf("got %q", content)
	}
	return err
}

// running returns the readers that have a process. None of them may be in use.
func running(cats []*catFile) string {
	out := ""
	for i, c := range cats {
		if c.cmd != nil {
			out += fmt.Sprint(i)
		}
	}
	return out
}

func TestLeastRecentlyUsedReaderIsStopped(t *testing.T) {
	t.Parallel()
	_, cats := openReaders(t, 4, 2)
	for _, step := range []struct {
		reader int
		want   string
	}{{0, "0"}, {1, "01"}, {0, "01"}, {2, "02"}, {3, "23"}, {0, "03"}} {
		if err := readContent(t.Context(), cats[step.reader]); err != nil {
			t.Fatal(err)
		}
		if got := running(cats); got != step.want {
			t.Errorf("after using %d, %s have a process, want %s", step.reader, got, step.want)
		}
	}
}

func TestReadersWaitWhileAllAreInUse(t *testing.T) {
	t.Parallel()
	all, cats := openReaders(t, 2, 1)
	inUse, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := cats[0].do(t.Context(), func() error {
			close(inUse)
			<-finish
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inUse
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := readContent(ctx, cats[1]); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled read returned %v", err)
	}
	wg.Go(func() {
		if err := readContent(t.Context(), cats[1]); err != nil {
			t.Error(err)
		}
	})
	close(finish)
	wg.Wait()
	all.close()
	if err := readContent(t.Context(), cats[1]); !errors.Is(err, ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}

func TestManyReadersShareFewProcesses(t *testing.T) {
	t.Parallel()
	all, cats := openReaders(t, 8, 2)
	var wg sync.WaitGroup
	for _, c := range cats {
		for range 2 {
			wg.Go(func() {
				for range 10 {
					if err := readContent(t.Context(), c); err != nil {
						t.Error(err)
					}
					all.mu.Lock()
					if n := all.open.Len(); n > 2 {
						t.Errorf("%d processes are open", n)
					}
					all.mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if got := running(cats); len(got) > 2 {
		t.Errorf("%s have a process", got)
	}
}
