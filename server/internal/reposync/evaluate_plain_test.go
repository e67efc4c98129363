package reposync

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// readTree counts the files that are read of it.
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

// Equal plain manifests are parsed once, and what differs is not shared.
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

func TestWhatFailsOrIsLargeIsNotShared(t *testing.T) {
	t.Parallel()
	var p plainRenders
	for i, out := range []*packed{nil, {content: make([]byte, plainBytes+1)}} {
		f, first := p.join("k")
		if !first {
			t.Fatalf("%d: somebody has it", i)
		}
		f.out = out
		p.finish("k", f)
	}
	for i := range plainsKept + 1 {
		f, first := p.join(string(rune('a' + i)))
		if !first {
			t.Fatal("somebody has it")
		}
		f.out = &packed{}
		p.finish(string(rune('a'+i)), f)
	}
	if _, first := p.join("a"); !first || len(p.flights) != plainsKept+1 {
		t.Errorf("%d are kept", len(p.flights))
	}
}

// Those who wait get what the first has found.
func TestWhoWaitsForAnEqualRenderGetsIt(t *testing.T) {
	t.Parallel()
	_, w, _ := passesOf(t, "a")
	f, _ := w.plainRenders.join("k")
	f.out = &packed{digest: "sha256:x"}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			out, key, err := w.renderPlain(t.Context(), "k", nil, w.request(fleet.Deployment{}, Unit{}))
			if err != nil || out.digest != "sha256:x" || key != "k" {
				t.Errorf("got %v, %q, %v", out, key, err)
			}
		})
	}
	w.plainRenders.finish("k", f)
	all.Wait()
}
