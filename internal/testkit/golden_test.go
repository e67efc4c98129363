package testkit_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, file, got, want, reason string
	}{
		{"equal", "hello.golden", "hello\n", "", "equal content passes"},
		{"different", "hello.golden", "goodbye\n", "differs", "other content fails with the difference"},
		{"missing", "none.golden", "hello\n", "-update", "the error about a missing file explains how to create it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{TB: t}
			rec.run(func() { testkit.Golden(rec, tc.file, tc.got) })
			if tc.want == "" && rec.message != "" || !strings.Contains(rec.message, tc.want) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, rec.message, tc.want)
			}
		})
	}
}
