package manifest_test

import (
	"testing"
	"testing/synctest"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// TestPackInABubbleFirst shows something only if nothing in the process has packed a set before: the encoder
// that all goroutines share must not belong to the bubble which used it first.
func TestPackInABubbleFirst(t *testing.T) {
	set, err := manifest.NewSet([]manifest.Object{object(t, "a", "v1", "Secret", "", "x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) { set.Pack() })
	set.Pack()
}
