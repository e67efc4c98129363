//go:build linux

package child_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
)

// covers: G9, G10
func TestEveryLimitHasItsMessage(t *testing.T) {
	t.Parallel()
	quick := child.Limits{Time: 2 * time.Second}
	patient := child.Limits{Time: 2 * time.Minute, Memory: 256 << 20, Output: 8 << 20}
	tests := []struct {
		reason, what string
		limits       child.Limits
		want         []string // all in the message
	}{
		{"a loop", "spin", quick, []string{"longer than 2s", "--render-timeout"}},
		{"a deadlock", "hang", quick, []string{"longer than 2s", "--render-timeout"}},
		{"endless questions", "ask-for-ever", quick, []string{"longer than 2s"}},
		{"ten gigabytes", "allocate", patient, []string{"more than 256 MiB of memory", "--render-memory"}},
		{"many goroutines", "goroutines", patient, []string{"more than 256 MiB of memory"}},
		{"many threads", "threads", patient, []string{"threads"}},
		{"endless recursion", "recurse", patient, []string{"recursion limit"}},
		{"a gigabyte of objects", "output", child.Limits{Time: 2 * time.Minute, Output: 8 << 20}, []string{"larger than 8 MiB", "--render-output"}},
		{"one large object", "big-object", child.Limits{Time: 2 * time.Minute}, []string{"larger than 16 MiB"}},
		{"many objects", "many", child.Limits{Time: 2 * time.Minute}, []string{"more than the 10000 objects"}},
		{"a panic", "panic", patient, []string{"crashed", "oh no"}},
		{"an exit", "exit", patient, []string{"crashed", "exit status 0"}},
		{"chatter", "stderr", patient, []string{"crashed", "too much to its standard error"}},
		{"an invalid message", "garbage", patient, []string{"invalid message"}},
		{"an object that is none", "bad-object", patient, []string{"chart/templates/x.yaml", "metadata.name"}},
		{"a mistake", "mistake", patient, []string{"a/b.yaml: it is wrong"}},
		{"an error of unknown kind", "fault", patient, []string{"out of my mind"}},
		{"a way out of the tree", "read-dotdot", patient, []string{"../../etc/passwd"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, child.Config{Limits: tt.limits})
			built, err := pool.Build(t.Context(), job("a", tt.what))
			if err == nil || !render.IsUserError(err) {
				t.Fatalf("got %v, %v, want a user error", built, err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			var failed *render.Failed
			if !errors.As(err, &failed) || !slices.Contains(failed.Reads, "f looked-at") {
				t.Errorf("%v does not contain the read set", err)
			}
			// The next one is not harmed.
			if got, err := pool.Build(t.Context(), job("a", "who")); text(t, got, err) == "" {
				t.Error("the next build says nothing")
			}
		})
	}
}

func TestMemoryPastTheRuntimeIsBounded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Limits: child.Limits{Memory: 256 << 20, Time: time.Minute}})
	built, err := pool.Build(t.Context(), job("a", "map"))
	if got := text(t, built, err); got == "all" || len(got) > 3 {
		t.Errorf("a child with 256 MiB has mapped %s MiB", got)
	}
}

func TestAFaultOfTheTreeIsNotTheUsers(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	j := job("a", "read")
	j.Tree = brokenTree{memtree.New(nil)}
	_, err := pool.Build(t.Context(), j)
	if !errors.Is(err, errDisk) || render.IsUserError(err) {
		t.Errorf("got %v", err)
	}
}

// An error of the tree itself may be caused by something outside the tree.
func TestATreeThatCannotBeReadExplainsNothingByWhatWasRead(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	j := job("a", "read")
	j.Tree = closedTree{memtree.New(map[string]string{"a": "1"})}
	_, err := pool.Build(t.Context(), j)
	var failed *render.Failed
	if !render.IsUserError(err) || errors.As(err, &failed) {
		t.Errorf("got %v with reads %v", err, failed)
	}
}

func TestTheTreeIsReadThroughTheParent(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	j := job("a", "read")
	files := map[string]string{"a.yaml": "one", "b/c.yaml": "two\x00", "d/e/f": ""}
	j.Tree = memtree.New(files)
	built, err := pool.Build(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range built.Objects {
		data, _ := o.Content["data"].(map[string]any)
		path, content, _ := strings.Cut(data["text"].(string), "=")
		got[path] = content
	}
	for path, want := range files {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	if len(built.Reads) == 0 {
		t.Error("the read set is unknown")
	}
}

func TestLimitsOfReadingAreTheParents(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	j := job("a", "read")
	j.Tree = memtree.New(map[string]string{"a": strings.Repeat("x", 2000)})
	j.Limits = render.Limits{FileBytes: 1000}
	_, err := pool.Build(t.Context(), j)
	if err == nil || !render.IsUserError(err) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAChildSaysIsCleaned(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	built, err := pool.Build(t.Context(), job("a", "long-notes"))
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Notes) != 51 || len(built.Notes[0]) > 600 || strings.Contains(built.Notes[0], "\x1b") {
		t.Errorf("%d notes came, the first is %.80q", len(built.Notes), built.Notes[0])
	}
	built, err = pool.Build(t.Context(), job("a", "stdout"))
	if text(t, built, err) == "" {
		t.Error("a library that prints breaks the protocol")
	}
}
