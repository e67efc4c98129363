package fieldset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func decodeYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// owned is a live object of ours: fields is what we own of it.
func owned(t *testing.T, text, fields string) *unstructured.Unstructured {
	t.Helper()
	live := decodeYAML(t, text)
	managed := decodeYAML(t, "{manager: kedge, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: "+fields+"}")
	if err := unstructured.SetNestedSlice(live.Object, []any{managed.Object}, "metadata", "managedFields"); err != nil {
		t.Fatal(err)
	}
	return live
}

// covers: D2
func TestSpareLeavesWhatRulesNameAsItIs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rule, body, live, fields string
		want                     string // of spec
	}{
		"ours: the live value": {"*:/spec/a", "{spec: {a: 1, b: 1}}", "{spec: {a: 2, b: 2}}", `{"f:spec":{"f:a":{},"f:b":{}}}`, "{a: 2, b: 1}"},
		"another's: left out":  {"*:/spec/a", "{spec: {a: 1, b: 1}}", "{spec: {a: 2, b: 2}}", `{"f:spec":{"f:b":{}}}`, "{b: 1}"},
		"gone: left out":       {"*:/spec/a", "{spec: {a: 1, b: 1}}", "{spec: {b: 2}}", `{"f:spec":{"f:b":{}}}`, "{b: 1}"},
		"a map: just what is ours of it": {"*:/spec/a", "{spec: {a: {x: 1, y: 1}, b: 1}}", "{spec: {a: {x: 2, y: 2, z: 2}, b: 2}}",
			`{"f:spec":{"f:a":{"f:x":{}},"f:b":{}}}`, "{a: {x: 2}, b: 1}"},
		"a map that nothing is left of is not claimed": {"*:/spec/a/x", "{spec: {a: {x: 1}, b: 1}}", "{spec: {a: {x: 2}, b: 2}}", `{"f:spec":{"f:b":{}}}`, "{b: 1}"},
		"items by their keys, whatever their order": {"*:/spec/c/*/image", "{spec: {c: [{name: one, image: i, x: 1}, {name: two, image: i}]}}",
			"{spec: {c: [{name: two, image: t}, {name: one, image: o, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{".":{},"f:name":{},"f:image":{},"f:x":{}},"k:{\"name\":\"two\"}":{".":{},"f:name":{}}}}}`,
			"{c: [{name: one, image: o, x: 1}, {name: two}]}"},
		"a whole item, with the keys that it is told apart by": {"*:/spec/c/0", "{spec: {c: [{name: one, x: 1}, {name: two, x: 1}]}}",
			"{spec: {c: [{name: one, x: 2}, {name: two, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:x":{}},"k:{\"name\":\"two\"}":{"f:x":{}}}}}`,
			"{c: [{name: one, x: 2}, {name: two, x: 1}]}"},
		"dropped: kept":                    {"*:/spec/a", "{spec: {b: 1}}", "{spec: {a: 2, b: 2, x: 2}}", `{"f:spec":{"f:a":{},"f:b":{},"f:x":{}}}`, "{a: 2, b: 1}"},
		"dropped, and another's: left out": {"*:/spec/a", "{spec: {b: 1}}", "{spec: {a: 2, b: 2}}", `{"f:spec":{"f:b":{}}}`, "{b: 1}"},
		"dropped with the map around it: just what is named": {"*:/spec/a/x", "{spec: {b: 1}}", "{spec: {a: {x: 2, y: 2}, b: 2}}",
			`{"f:spec":{"f:a":{"f:x":{},"f:y":{}},"f:b":{}}}`, "{a: {x: 2}, b: 1}"},
		"dropped items that are named as a whole: kept": {"*:/spec/c/*", "{spec: {c: [{name: one, x: 1}]}}", "{spec: {c: [{name: one, x: 2}, {name: two, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:x":{}},"k:{\"name\":\"two\"}":{"f:x":{}}}}}`,
			"{c: [{name: one, x: 2}, {name: two, x: 2}]}"},
		"dropped items of which something is named: gone": {"*:/spec/c/*/x", "{spec: {c: [{name: one, x: 1}]}}", "{spec: {c: [{name: one, x: 2}, {name: two, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:name":{},"f:x":{}},"k:{\"name\":\"two\"}":{"f:name":{},"f:x":{}}}}}`,
			"{c: [{name: one, x: 2}]}"},
		"a new item: all of it": {"*:/spec/c/*/x", "{spec: {c: [{name: one, x: 1}, {name: two, x: 1}]}}", "{spec: {c: [{name: one, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:name":{},"f:x":{}}}}}`, "{c: [{name: one, x: 2}, {name: two, x: 1}]}"},
		"an item of another's: what is named of it is left out": {"*:/spec/c/*/x", "{spec: {c: [{name: one, x: 1}, {name: two, x: 1}]}}", "{spec: {c: [{name: one, x: 2}, {name: two, x: 2}]}}",
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:name":{},"f:x":{}}}}}`, "{c: [{name: one, x: 2}, {name: two}]}"},
		"a list of another's is no value of ours": {"*:/spec/c/1", "{spec: {b: 1, c: [a, b]}}", "{spec: {b: 1, c: [x, y, z]}}", `{"f:spec":{"f:b":{}}}`, "{b: 1, c: [a]}"},
		"a map that is one value":                 {"*:/spec/a/x", "{spec: {a: {x: 1, y: 1}}}", "{spec: {a: {x: 2, y: 2, z: 2}}}", `{"f:spec":{"f:a":{}}}`, "{a: {x: 2, y: 1}}"},
		"a list that is one value, all of it":     {"*:/spec/c/*", "{spec: {b: 1, c: [a]}}", "{spec: {b: 1, c: [x, y, z]}}", `{"f:spec":{"f:b":{},"f:c":{}}}`, "{b: 1, c: [x, y, z]}"},
		"a list that is one value, by number":     {"*:/spec/c/1", "{spec: {c: [a, b, c]}}", "{spec: {c: [x, y, z]}}", `{"f:spec":{"f:c":{}}}`, "{c: [a, y, c]}"},
	}
	for reason, tt := range tests {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			rules := RulesFor([]string{tt.rule, "Elsewhere:/spec"}, fleet.ObjectRef{Kind: "Thing", Name: "a"})
			body, live := decodeYAML(t, tt.body), owned(t, tt.live, tt.fields)
			live.SetResourceVersion("7")
			rules.Preserve(body, live)
			if diff := cmp.Diff(decodeYAML(t, "{spec: "+tt.want+"}").Object["spec"], body.Object["spec"]); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if body.GetResourceVersion() != "7" {
				t.Error("the request is not bound to the version that was read")
			}
		})
	}
}

// covers: D2
func TestProjectionDoesNotSeeWhatRulesName(t *testing.T) {
	t.Parallel()
	const applied, ours = "{metadata: {labels: {l: x}}, spec: {a: 1, c: [{name: one, image: i}]}}", `{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:a":{},"f:c":{"k:{\"name\":\"one\"}":{"f:image":{}}}}}`
	rules := RulesFor([]string{"Thing:/spec/a", "Thing/a*:/spec/c/*/image"}, fleet.ObjectRef{Kind: "Thing", Name: "ab"})
	if len(rules) != 2 {
		t.Fatalf("%d rules speak of the object, want 2", len(rules))
	}
	before := rules.Projection(owned(t, applied, ours))
	for reason, live := range map[string]*unstructured.Unstructured{
		"changed":             owned(t, "{metadata: {labels: {l: x}}, spec: {a: 2, c: [{name: one, image: j}]}}", ours),
		"taken by another":    owned(t, "{metadata: {labels: {l: x}}, spec: {a: 2, c: [{name: one, image: j}]}}", `{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{"f:image":{}}}}}`),
		"all taken":           owned(t, "{metadata: {labels: {l: x}}, spec: {a: 2, c: [{name: one, image: j}]}}", `{"f:metadata":{"f:labels":{"f:l":{}}}}`),
		"removed by somebody": owned(t, "{metadata: {labels: {l: x}}, spec: {c: []}}", `{"f:metadata":{"f:labels":{"f:l":{}}}}`),
	} {
		if got := rules.Projection(live); got != before {
			t.Errorf("%s: a field to be ignored is seen", reason)
		}
	}
	if other := owned(t, "{metadata: {labels: {l: x}}, spec: {a: 1, b: 1, c: [{name: one, image: i}]}}", `{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:a":{},"f:b":{}}}`); rules.Projection(other) == before {
		t.Error("a field that is not to be ignored is not seen")
	}
}
