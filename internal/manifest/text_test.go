package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/manifest"
)

func TestTextIsTheObject(t *testing.T) {
	t.Parallel()
	objects, err := manifest.Parse("a.yaml", []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: x, annotations: {note: "<&> \u2028 ü"}}
data: {one: "1", empty: ""}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: b}
spec: {count: 3, big: 9007199254740993, ratio: 1.5, list: [1, "two", null, {deep: true}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text := o.Text()
		if text.Hash() != o.Hash() {
			t.Errorf("%s: the hash of its text is another one", o.Ref)
		}
		got := text.Object()
		if diff := cmp.Diff(o.Content, got.Content); diff != "" || got.Ref != o.Ref {
			t.Errorf("%s comes back as %s (-want +got):\n%s", o.Ref, got.Ref, diff)
		}
		got.Content["kind"] = "Other"
		if text.Object().Ref.Kind != o.Ref.Kind {
			t.Error("a change of what was decoded has changed the text")
		}
	}
}
