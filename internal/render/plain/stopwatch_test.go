package plain

import (
	"context"
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
)

// A render ends between two files or folders if its time is over, which may be transient, or if it is canceled.
func TestTimeIsLookedAtBetweenFiles(t *testing.T) {
	t.Parallel()
	tree := memtree.New(map[string]string{"a.yaml": "# a", "b/b.yaml": "# b"})
	files, _, err := Select(t.Context(), tree, ".", nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("canceled")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for reason, do := range map[string]func(context.Context, Limits) error{
		"folders": func(ctx context.Context, l Limits) error { _, _, err := Select(ctx, tree, ".", nil, l); return err },
		"files":   func(ctx context.Context, l Limits) error { _, err := Parse(ctx, tree, files, l); return err },
	} {
		var late *Error
		if err := do(t.Context(), Limits{Time: 1}); !errors.As(err, &late) || !late.Transient {
			t.Errorf("%s without time: got %v", reason, err)
		}
		if err := do(canceled, Limits{}); !errors.Is(err, gone) {
			t.Errorf("%s that is canceled: got %v", reason, err)
		}
		if err := do(t.Context(), Limits{}); err != nil {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}
