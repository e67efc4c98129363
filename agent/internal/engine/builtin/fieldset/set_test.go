package fieldset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func sample(t testing.TB, text string) map[string]any {
	t.Helper()
	out, err := decoded(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decoded reads YAML into the types that the API server's answers have.
func decoded(text string) (map[string]any, error) {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, utiljson.Unmarshal(data, &out)
}

func fieldsOf(t testing.TB, text string) Set {
	t.Helper()
	set, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const workload = `
metadata: {labels: {app: web, theirs: x}, finalizers: [a/b, c/d]}
spec:
  replicas: 2
  selector: {app: web}
  containers:
  - {name: web, image: "web:1", args: [one, two]}
  - {name: side, image: "side:1"}
  ports:
  - {port: 80, protocol: TCP}
  - {port: 80, protocol: UDP}
`

const workloadFields = `{
"f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
"f:spec": {"f:selector": {},
  "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}},
  "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}`

// Inventories in clusters hold projections that earlier agents have made.
func TestProjectionStaysAsItIs(t *testing.T) {
	t.Parallel()
	const fields = `{"f:metadata":{"f:labels":{"f:a":{},"f:gone":{}}},"f:spec":{"f:replicas":{},"f:list":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{}},"v:\"x\"":{},"i:0":{}}}}`
	object := sample(t, `{"metadata":{"labels":{"a":"<b>"}},"spec":{"replicas":3,"list":[{"name":"web","image":"i:1"},"x"]}}`)
	set, err := fromTree(sample(t, fields))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fieldsOf(t, fields), set); diff != "" {
		t.Errorf("fields read where they stand differ from those that are parsed (-parsed +read):\n%s", diff)
	}
	if got, want := set.Projection(object), "16d9f8a8e453e0d62ec21292404e6118"; got != want {
		t.Errorf("projection %s, want %s", got, want)
	}
}

func TestProjection(t *testing.T) {
	t.Parallel()
	set := fieldsOf(t, workloadFields)
	same := set.Projection(sample(t, workload))
	cases := []struct {
		reason, from, to string
		changed          bool
	}{
		{"nothing", "", "", false},
		{"a field of ours", "web:1", "web:2", true},
		{"a field of an item of somebody else", "side:1", "side:2", false},
		{"a field that nobody asked for", "replicas: 2", "replicas: 3", false},
		{"a label of ours", "app: web, theirs", "app: other, theirs", true},
		{"a label of somebody else", "theirs: x", "theirs: y", false},
		{"a map that is ours as a whole", "selector: {app: web}", "selector: {app: web, more: x}", true},
		{"a list that is ours as a whole", "[one, two]", "[two, one]", true},
		{"a value of a set of ours is gone", "[a/b, c/d]", "[c/d]", true},
		{"a value of a set of somebody else is gone", "[a/b, c/d]", "[a/b]", false},
		{"our list item is gone", "- {name: web,", "- {name: web2,", true},
		{"list items change places", "[a/b, c/d]", "[c/d, a/b]", false},
		{"an item with other keys", "{port: 80, protocol: UDP}", "{port: 81, protocol: UDP}", false},
		{"our item with several keys", "{port: 80, protocol: TCP}", "{port: 80, protocol: SCTP}", true},
		{"a list becomes something else", "[one, two]", "one", true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(workload, c.from, c.to, 1)
			if c.from != "" && text == workload {
				t.Fatal("the case changes nothing")
			}
			if got := set.Projection(sample(t, text)) != same; got != c.changed {
				t.Errorf("changed is %t, want %t", got, c.changed)
			}
		})
	}
	fewer := fieldsOf(t, strings.Replace(workloadFields, `"f:image": {}, `, "", 1))
	if fewer.Projection(sample(t, workload)) == same {
		t.Error("losing a field to somebody else goes unnoticed")
	}
}

func TestDifferingNamesPathsAsTheServerDoes(t *testing.T) {
	t.Parallel()
	set := fieldsOf(t, workloadFields)
	before := sample(t, strings.NewReplacer("web:1", "web:2", "[a/b, c/d]", "[]", "app: web, theirs", "theirs", "protocol: TCP", "protocol: SCTP").Replace(workload))
	got := set.Differing(before, sample(t, workload), 10)
	want := []string{
		`.metadata.finalizers[="a/b"]`, ".metadata.labels.app", `.spec.containers[name="web"].image`,
		`.spec.ports[port=80,protocol="TCP"]`, `.spec.ports[port=80,protocol="TCP"].port`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := set.Differing(before, sample(t, workload), 2); len(got) != 2 {
		t.Errorf("%d paths, want at most 2", len(got))
	}
	for _, path := range want {
		if !set.has(path) {
			t.Errorf("%s is not found in the set", path)
		}
	}
	if set.has(".spec.replicas") {
		t.Error(".spec.replicas is found in a set without it")
	}
}

// FuzzProjection: whatever the server or the object says, projecting does not panic, is stable, and
// the object is equal to itself.
func FuzzProjection(f *testing.F) {
	f.Add(workloadFields, `{"spec":{"replicas":2,"containers":[{"name":"web","args":["a"]}],"ports":[{"port":80,"protocol":"TCP"}]}}`)
	f.Add(`{"k:{":{},"v:":{},"i:x":{},"i:-1":{},"x":{}}`, `{}`)
	f.Add(`{"f:a":{"i:0":{},"k:[]":{"f:b":{}}}}`, `{"a":[1,{"b":2}]}`)
	f.Add(`null`, `{"a":null}`)
	f.Fuzz(func(t *testing.T, fields, text string) {
		set, err := Parse([]byte(fields))
		var obj map[string]any
		if err != nil || utiljson.Unmarshal([]byte(text), &obj) != nil {
			return
		}
		if first, second := set.Projection(obj), set.Projection(obj); first != second {
			t.Error("the projection is not stable")
		}
		if got := set.Differing(obj, obj, 10); len(got) != 0 {
			t.Errorf("an object differs from itself at %v", got)
		}
	})
}
