package reposync

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// readTree counts the files that are read.
type readTree struct {
	filetree.Tree
	reads *atomic.Int32
}

func (c readTree) Read(ctx context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	c.reads.Add(1)
	return c.Tree.Read(ctx, e, limit)
}

// countedGit is a Git whose trees are counted.
type countedGit struct {
	dated
	reads atomic.Int32
}

func (g *countedGit) Tree(ctx context.Context, access gitsource.Access, commit string) (filetree.Tree, error) {
	tree, err := g.dated.Tree(ctx, access, commit)
	return readTree{tree, &g.reads}, err
}

// Equal plain manifests are parsed once, and different ones are not shared.
func TestEqualPlainManifestsAreParsedOnce(t *testing.T) {
	t.Parallel()
	s, w, _ := passesOf(t, "a", "b", "c", "d")
	git := &countedGit{}
	s.sources.git = git
	for _, tt := range []struct {
		reason, commit string
		reads          int32
	}{
		{"the first commit, for four deployments", "1", 1},
		{"another commit", "2", 1},
		{"the same one again", "2", 0},
	} {
		git.reads.Store(0)
		digests := map[string]bool{}
		for _, o := range look(t, w, tt.commit) {
			digests[o.parts[0].digest] = true
		}
		if got := git.reads.Load(); got != tt.reads || len(digests) != 1 {
			t.Errorf("%s: %d files were read, want %d; there are %d results", tt.reason, got, tt.reads, len(digests))
		}
	}
}

func TestFailedAndLargeRendersAreNotKept(t *testing.T) {
	t.Parallel()
	p := newPlainRenders()
	render := func(key string, out *packed, fails error) bool {
		_, first, err := p.get(t.Context(), key, func() (*packed, error) { return out, fails })
		if first && !errors.Is(err, fails) {
			t.Errorf("got error %v, want %v", err, fails)
		}
		return first
	}
	for range 2 {
		if !render("failed", nil, errors.New("bad YAML")) || !render("large", &packed{content: make([]byte, plainBytes+1)}, nil) {
			t.Error("the result is kept")
		}
	}
	if !render("small", &packed{}, nil) || render("small", nil, nil) {
		t.Error("a result is not kept")
	}
	for i := range plainsKept + 1 {
		render(strconv.Itoa(i), &packed{content: make([]byte, plainBytes)}, nil)
	}
	if !render("small", &packed{}, nil) {
		t.Error("the least recently used result is kept beyond the limit")
	}
}

func TestEqualRendersAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlainRenders()
		release := make(chan struct{})
		runs := 0
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				out, _, err := p.get(t.Context(), "k", func() (*packed, error) {
					runs++
					<-release
					return &packed{digest: "sha256:x", content: make([]byte, plainBytes+1)}, nil
				})
				if err != nil || out.digest != "sha256:x" {
					t.Errorf("got %v, %v", out, err)
				}
			})
		}
		synctest.Wait()
		close(release)
		all.Wait()
		if runs != 1 {
			t.Errorf("%d renders ran, want one", runs)
		}
	})
}

// The error of one caller, such as an ended context, is not the error of another.
func TestAFailedRenderIsRepeatedByOtherCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlainRenders()
		release := make(chan struct{})
		var firsts atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, first, err := p.get(t.Context(), "k", func() (*packed, error) {
					<-release
					return nil, context.Canceled
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v", err)
				}
				if first {
					firsts.Add(1)
				}
			})
		}
		synctest.Wait()
		close(release)
		all.Wait()
		if firsts.Load() != 1 {
			t.Errorf("%d callers count as the first, want one: the others render again", firsts.Load())
		}
	})
}
