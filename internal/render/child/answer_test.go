package child

import (
	"bufio"
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// slowTree has to fetch files first.
type slowTree struct {
	filetree.Tree
	takes time.Duration
}

func (t slowTree) List(ctx context.Context, path string) ([]filetree.Entry, error) {
	select {
	case <-time.After(t.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return t.Tree.List(ctx, path)
}

type discard struct{ bytes.Buffer }

func (*discard) Close() error { return nil }

// A fetch that leaves no time for a render is not a mistake of a user and is not aborted: its result helps the
// next attempt. A fetch that only ends late is not the cause.
func TestAFetchThatTakesTheTimeOfARenderIsAFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason          string
		computed, takes time.Duration
		fault           bool
	}{
		{"a fetch that takes longer than the limit of the render", 0, time.Minute, true},
		{"a fetch that takes most of the time of the render", 10 * time.Second, 25 * time.Second, true},
		{"a render that was slow by itself", 29 * time.Second, 2 * time.Second, false},
		{"a fetch in time", 0, 20 * time.Second, false},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limits := Limits{}.orDefault()
				ctx, cancel := context.WithTimeoutCause(t.Context(), limits.Time, errTime)
				defer cancel()
				replies := &discard{}
				b := &building{
					process: &process{in: replies, out: bufio.NewReader(&discard{})}, replies: bufio.NewWriter(replies), limits: limits, outer: t.Context(),
					files: treefs.New(slowTree{memtree.New(map[string]string{"a": "1"}), tt.takes}, treefs.Limits{}),
				}
				<-time.After(tt.computed)
				if err := b.answer(ctx, []byte("sa")); err != nil {
					t.Fatal(err)
				}
				if (b.fault != nil) != tt.fault || render.IsUserError(b.fault) {
					t.Errorf("the fault is %v", b.fault)
				}
				if kind, reply, err := readFrame(replies, 1<<10); err != nil || kind != frameReply || reply[0] != replyOK {
					t.Errorf("the reply is %q, %v", reply, err)
				}
			})
		})
	}
}
