package enginetest

import (
	"slices"
	"testing"
)

func TestWhatIsSkippedIsACase(t *testing.T) {
	t.Parallel()
	h := Harness{Skip: map[string]string{driftCases[0].name: "another controller does that", "something else": "no such case"}}
	if got := h.unknown(driftCases); !slices.Equal(got, []string{"something else"}) {
		t.Errorf("%q are no cases", got)
	}
}
