package fieldset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// covers: A11
func TestDiff(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	tests := map[string]struct {
		before, after string
		want          []string
	}{
		"nothing": {"{data: {a: 1}}", "{data: {a: 1}}", nil},
		"what the API server keeps is not said": {
			"{metadata: {generation: 1, resourceVersion: a, managedFields: []}, status: {a: 1}}", "{metadata: {generation: 2, resourceVersion: b}, status: {a: 2}}", nil},
		"changed, added and removed": {"{data: {a: 1, b: 1}}", "{data: {a: 2, c: {x: why}}}",
			[]string{`.data.a: 1 → 2`, `.data.b: 1 → (none)`, `.data.c: (none) → {"x":"why"}`}},
		"items by name":   {"{c: [{name: a, x: 1}, {name: b, x: 1}]}", "{c: [{name: b, x: 2}, {name: a, x: 1}]}", []string{`.c[name="b"].x: 1 → 2`}},
		"items by number": {"{c: [1, 2]}", "{c: [1, 3, 4]}", []string{`.c[1]: 2 → 3`, `.c[2]: (none) → 4`}},
		"another type":    {"{a: 1}", "{a: [1]}", []string{`.a: 1 → [1]`}},
		"long values":     {"{a: x}", "{a: " + long + "}", []string{`.a: "x" → "` + long[:79] + "…"}},
		"data of Secrets is hidden": {"{apiVersion: v1, kind: Secret, data: {a: c2VjcmV0}, type: x}", "{apiVersion: v1, kind: Secret, data: {b: c2VjcmV0}, type: z}",
			[]string{`.data.a: (hidden) → (none)`, `.data.b: (none) → (hidden)`, `.type: "x" → "z"`}},
		"data of Secrets is hidden as a whole": {"{apiVersion: v1, kind: Secret}", "{apiVersion: v1, kind: Secret, data: {b: c2VjcmV0}, stringData: {c: secret}}",
			[]string{`.data: (none) → (hidden)`, `.stringData: (none) → (hidden)`}},
		"what kubectl remembers is hidden": {
			"{metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: secret}}}", "{metadata: {annotations: {}}}",
			[]string{`.metadata.annotations.kubectl.kubernetes.io/last-applied-configuration: (hidden) → (none)`}},
	}
	for reason, tt := range tests {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, Diff(decodeYAML(t, tt.before), decodeYAML(t, tt.after))); d != "" {
				t.Errorf("diff (-want +got):\n%s", d)
			}
		})
	}
}

func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	got := Diff(decodeYAML(t, "{}"), decodeYAML(t, b.String()))
	if len(got) != maxDiffs+1 || got[maxDiffs] != fmt.Sprintf("and %d more", 1000-maxDiffs) {
		t.Errorf("got %d texts, the last %q", len(got), got[len(got)-1])
	}
}
