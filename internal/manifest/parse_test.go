package manifest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// head is the beginning of an object.
const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// named has the fields of an object that tests compare.
type named struct{ Ref, Source string }

func names(objects []manifest.Object) []named {
	var out []named
	for _, o := range objects {
		out = append(out, named{o.Ref.String(), o.Source})
	}
	return out
}

// covers: G7 (multi-document files, List)
func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		file   string
		text   string
		want   []named
	}{
		{"one object", "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", []named{{"ConfigMap a", "a.yaml"}}},
		{
			"several documents, some empty, with every kind of marker", "a.yaml",
			"%YAML 1.1\n---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n--- # next\n---\n" +
				"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b, namespace: ns}\n...\n---\nnull\n",
			[]named{{"ConfigMap a", "a.yaml (document 1)"}, {"Deployment.apps ns/b", "a.yaml (document 2)"}},
		},
		{
			"Windows line ends and a byte order mark", "a.yaml",
			"\xef\xbb\xbf---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: b\r\n",
			[]named{{"ConfigMap a", "a.yaml (document 1)"}, {"ConfigMap b", "a.yaml (document 2)"}},
		},
		{
			"a marker after a YAML-specific line break is a marker", "a.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\r---\rapiVersion: v1\rkind: ConfigMap\rmetadata: {name: b}\u2028---\u2028{}",
			nil, // {} has no apiVersion: the text after the marker is parsed
		},
		{
			"text inside a block scalar that looks like a marker", "a.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: |\n    ---\n    kind: x\n    ...\n",
			[]named{{"ConfigMap a", "a.yaml"}},
		},
		{"JSON", "a.json", "\n{\"apiVersion\":\"v1\",\n\t\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\\ud83d\\ude00\"}}", []named{{"ConfigMap a😀", "a.json"}}},
		{
			"JSON values one after another", "a.json",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`,
			[]named{{"ConfigMap a", "a.json (document 1)"}, {"ConfigMap b", "a.json (document 2)"}},
		},
		{"a flow mapping in YAML", "a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", []named{{"ConfigMap a", "a.yaml"}}},
		{
			"a List, and a List in it", "a.yaml",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]}\n",
			[]named{{"Secret a", "a.yaml (item 1)"}, {"Secret b", "a.yaml (item 2, item 1)"}},
		},
		{
			"a typed list, whose items have no type", "a.yaml",
			"apiVersion: apps/v1\nkind: DeploymentList\nitems: [{metadata: {name: a}}]",
			[]named{{"Deployment.apps a", "a.yaml (item 1)"}},
		},
		{"an empty List", "a.yaml", "{apiVersion: v1, kind: List, items: []}", nil},
		{
			"an object whose kind ends in List", "a.yaml",
			"apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [x]\n",
			[]named{{"AllowList.example.com a", "a.yaml"}},
		},
		{
			"a namespace on a kind that has none", "a.yaml",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a, namespace: ns}\n",
			[]named{{"ClusterRole.rbac.authorization.k8s.io a", "a.yaml"}},
		},
		{"nothing", "a.yaml", "", nil},
		{"only comments", "a.yaml", "# a\n\n# b\n", nil},
		{
			"anchors and merges", "a.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: a}\ndata: {<<: {x: y}, z: q}\nother: *m\n",
			[]named{{"ConfigMap a", "a.yaml"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			objects, err := manifest.Parse(tt.file, []byte(tt.text))
			if strings.Contains(tt.text, "\u2028") {
				if err == nil || !strings.Contains(err.Error(), "document 3") {
					t.Errorf("got %v, %v, want an error in document 3", names(objects), err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, names(objects)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// covers: A12 (invalid at render: syntax and identity)
func TestParseNamesMistakes(t *testing.T) {
	t.Parallel()
	const good = head
	tests := []struct {
		reason string
		file   string
		text   string
		want   manifest.Error
	}{
		{"not YAML", "a.yaml", good + "data: [\n", manifest.Error{Document: 1, Line: 4, Problem: "not valid YAML"}},
		{"not YAML, in the second document", "a.yaml", good + "---\n" + good + "x: y: z\n", manifest.Error{Document: 2, Line: 8, Problem: "not valid YAML: mapping values"}},
		{"a key twice", "a.yaml", good + "---\n" + good + "kind: Secret\n", manifest.Error{Document: 2, Line: 8, Problem: `key "kind" already set`}},
		{"a key twice in JSON", "a.json", `{"kind":"a","kind":"b"}`, manifest.Error{Document: 1, Line: 1, Problem: `duplicate field "kind"`}},
		{"broken JSON", "a.json", "{\n\"kind\": }", manifest.Error{Document: 1, Line: 2, Problem: "not valid JSON"}},
		{"JSON that is cut off", "a.json", "{}\n{", manifest.Error{Document: 2, Line: 2, Problem: "not valid JSON"}},
		{"plain text", "a.yaml", "hello\n", manifest.Error{Document: 1, Line: 1, Problem: "not a Kubernetes object"}},
		{"no apiVersion", "a.yaml", "---\n" + good + "---\nkind: x\n", manifest.Error{Document: 2, Line: 5, Problem: "apiVersion is missing"}},
		{"apiVersion with two slashes", "a.yaml", "apiVersion: a/b/c\nkind: x\nmetadata: {name: a}", manifest.Error{Document: 1, Line: 1, Problem: `apiVersion "a/b/c"`}},
		{"no kind", "a.yaml", "apiVersion: v1\n", manifest.Error{Document: 1, Line: 1, Problem: "kind is missing"}},
		{"a kind that is a number", "a.yaml", "apiVersion: v1\nkind: 1\n", manifest.Error{Document: 1, Line: 1, Problem: "kind must be a string"}},
		{"no metadata", "a.yaml", "apiVersion: v1\nkind: Pod\n", manifest.Error{Document: 1, Line: 1, Problem: "Pod has no metadata"}},
		{"no name", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {}\n", manifest.Error{Document: 1, Line: 1, Problem: "Pod: metadata: name is missing"}},
		{"generateName", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", manifest.Error{Document: 1, Line: 1, Problem: "generateName is not supported"}},
		{"a label that is a number", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {version: 1.0}}\n", manifest.Error{Document: 1, Line: 1, Problem: `metadata.labels: the value of "version" must be a string`}},
		{"a bad item", "a.yaml", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n", manifest.Error{Document: 1, Line: 1, Problem: "item 1: Pod has no metadata"}},
		{"UTF-16", "a.yaml", "\xff\xfea\x00", manifest.Error{Problem: "UTF-16"}},
		{"Latin-1", "a.yaml", "a: \xe4\n", manifest.Error{Problem: "not valid UTF-8"}},
		{"a binary file", "a.yaml", "a: b\n\x00", manifest.Error{Line: 2, Problem: "NUL byte"}},
		{"infinity", "a.yaml", good + "x: .inf\n", manifest.Error{Document: 1, Line: 1, Problem: "unsupported value"}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			objects, err := manifest.Parse(tt.file, []byte(tt.text))
			var got *manifest.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, %v, want an Error", objects, err)
			}
			if got.Source != tt.file || got.Document != tt.want.Document || got.Line != tt.want.Line || !strings.Contains(got.Problem, tt.want.Problem) {
				t.Errorf("got %#v, want %#v", *got, tt.want)
			}
		})
	}
}

// The test does not run in parallel because it measures the allocations of the process.
//
// covers: G10 (YAML bombs)
func TestParseRefusesBombsQuickly(t *testing.T) {
	const size = 5 << 20 // of the largest file that is read
	var laughs, tags strings.Builder
	laughs.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	for i := 0; tags.Len() < size; i++ {
		fmt.Fprintf(&tags, "%%TAG !t%d! x\n", i)
	}
	wide := func(open, item, end string) string { return head + open + strings.Repeat(item, size/len(item)) + end }
	bombs := []struct{ reason, file, text string }{
		{"nested aliases", "a.yaml", laughs.String()},
		{"many aliases of a long string", "a.yaml", "s: &s " + strings.Repeat("x", 1<<20) + "\nl: [" + strings.TrimSuffix(strings.Repeat("*s,", 100_000), ",") + "]\n"},
		{"aliases of a long list", "a.yaml", head + "s: &s [" + strings.Repeat("1,", 400_000) + "1]\nl: [*s, *s]\n"},
		{"deep nesting", "a.yaml", strings.Repeat("[", 1<<20)},
		{"deep nesting in JSON", "a.json", strings.Repeat(`{"a":`, 1<<20)},
		{"a document for every four bytes", "a.yaml", strings.Repeat("---\n", 1<<20) + "x"},
		{"a value for every two bytes", "a.yaml", wide("x: [", "x,", "x]\n")},
		{"a list for every three bytes", "a.yaml", wide("x: {a: [", "[],", "[]]}\n")},
		{"an item for every two bytes", "a.yaml", wide("x:\n", "-\n", "")},
		{"an item for every three bytes, with YAML-specific line breaks", "a.yaml", wide("x:\n", "-\u0085", "")},
		{"a key for every four bytes", "a.yaml", wide("x:\n", "? a\n", "")},
		{"a list without an end", "a.yaml", wide("x: [", "x,", "")},
		{"a value for every two bytes of JSON", "a.json", `{"x":[` + strings.Repeat("1,", size/2) + "1]}"},
		{"a document for every two bytes of JSON", "a.json", strings.Repeat("{}", size/2)},
		{"a document for every six bytes", "a.yaml", strings.Repeat("---\n~\n", size/6)},
		{"directives that are each compared with all", "a.yaml", tags.String() + "x: y\n"},
	}
	for _, bomb := range bombs {
		t.Run(bomb.reason, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			objects, err := manifest.Parse(bomb.file, []byte(bomb.text))
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.HasPrefix(err.Error(), bomb.file) {
				t.Errorf("it was parsed to %d objects and the error %v, which does not name the file", len(objects), err)
			}
			if took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 200 {
				t.Errorf("it took %d MiB", mib)
			}
		})
	}
}

// Realistic files are not refused as bombs.
func TestParseTakesLargeFiles(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	fill := func(start, item string) string { return start + strings.Repeat(item, (size-len(start))/len(item)) }
	dashboard := `{"id":12,"title":"Requests, by code","targets":[{"expr":"sum(rate(x[5m]))","refId":"A"}],"yaxes":[{"format":"short"},{"show":true}]},` + "\n"
	var bundle strings.Builder
	for i := 0; bundle.Len() < size; i++ {
		fmt.Fprintf(&bundle, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: dashboard-%d}\ndata:\n  a.json: |\n%s", i, strings.Repeat("    "+dashboard, 6000))
	}
	files := []struct {
		reason, text string
		objects      int
	}{
		{"text", fill(head+"data:\n  a: |\n", "    Call me Ishmael. Some years ago - never mind how long precisely - I thought I would sail.\n"), 1},
		{"a definition", fill(head+"spec:\n  properties:\n", "  - field:\n      description: What it is, and what it is for, e.g. this or that.\n      type: string\n"), 1},
		{"a definition that describes nothing", fill(head+"spec:\n", "        - properties:\n            field: {type: string}\n"), 1},
		{"dashboards in JSON without spaces, as documents", bundle.String(), 7},
	}
	for _, tt := range files {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			if objects, err := manifest.Parse("a.yaml", []byte(tt.text)); err != nil || len(objects) != tt.objects {
				t.Errorf("got %d objects and %v", len(objects), err)
			}
		})
	}
}

func TestNumbersSurvive(t *testing.T) {
	t.Parallel()
	const numbers = "big: 9007199254740993\nint: 1.0\nhalf: 0.5\nsmall: -1e-7\nhuge: 1e+21\nbeyond: 18446744073709551615\nquoted: \"007\"\nyes: true\n"
	yaml := "apiVersion: v1\nkind: X\nmetadata: {name: a}\n" + numbers
	json := `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"},"big":9007199254740993,"int":1.0,"half":0.5,"small":-1e-7,"huge":1e+21,"beyond":18446744073709551615,"quoted":"007","true":true}`
	want := map[string]any{
		"big": int64(9007199254740993), "int": int64(1), "half": 0.5, "small": -1e-7, "huge": 1e21, "beyond": float64(1 << 64), "quoted": "007", "true": true,
		"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "a"},
	}
	for file, text := range map[string]string{"a.yaml": yaml, "a.json": json} {
		objects, err := manifest.Parse(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, objects[0].Content); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		set, err := manifest.NewSet(objects, "")
		if err != nil {
			t.Fatal(err)
		}
		again, err := manifest.Decode(set.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, again.Objects()[0].Content); diff != "" {
			t.Errorf("%s after a round trip (-want +got):\n%s", file, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"a: &a b\nc: *a\n---\n...\n", `{"apiVersion":"v1","kind":"List","items":[{}]}`, "\r---\r", "%YAML 1.1\n---\n", "- 1\n- .nan\n",
		"{apiVersion: v1, kind: X, metadata: {name: a}, x: [-0.0, 1e400, 0x10, 1_000, ~, '']}",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, json bool) {
		file := "a.yaml"
		if json {
			file = "a.json"
		}
		objects, err := manifest.Parse(file, []byte(text))
		if err != nil {
			var user *manifest.Error
			if !errors.As(err, &user) {
				t.Fatalf("not a user's mistake: %v", err)
			}
			return
		}
		set, err := manifest.NewSet(objects, "default")
		if err != nil {
			return
		}
		// Every input that parses reaches an agent unchanged.
		digest, packed, size := set.Pack()
		again, err := manifest.Unpack(digest, packed, max(size, 1))
		if err != nil {
			t.Fatal(err)
		}
		if again.Digest() != digest || again.Len() != set.Len() {
			t.Errorf("the digest went from %s to %s", digest, again.Digest())
		}
		for i, o := range again.Objects() {
			if diff := cmp.Diff(set.Objects()[i].Content, o.Content); diff != "" || o.Ref != set.Objects()[i].Ref {
				t.Errorf("object %d (-parsed +unpacked):\n%s", i, diff)
			}
		}
	})
}

func ref(group, kind, namespace, name string) fleet.ObjectRef {
	return fleet.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: namespace, Name: name}
}
