package objectdiff_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/objectdiff"
)

func objects(t *testing.T, text string) []manifest.Object {
	t.Helper()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parsed, err := manifest.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func lines(found []objectdiff.Object) []string {
	var out []string
	for _, o := range found {
		out = append(out, fmt.Sprintf("%s %s", o.Kind, o.Ref))
		for _, f := range o.Fields {
			out = append(out, fmt.Sprintf("  %s %s: %s -> %s", f.Kind, f.Path, f.Old, f.New))
		}
		if o.More > 0 {
			out = append(out, fmt.Sprintf("  %d more", o.More))
		}
	}
	return out
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, template: {spec: {containers: %s}}}\n"
	configMap := func(name, data string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: %s\n---\n", name, data)
	}
	service := func(ports string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: " + ports + "}\n"
	}
	cases := map[string]struct {
		reason   string
		from, to string
		want     []string
	}{
		"Same":      {reason: "nothing differs", from: configMap("a", "{x: '1'}"), to: configMap("a", "{x: '1'}")},
		"Changed":   {reason: "by path", from: configMap("a", "{x: '1', z: '1'}"), to: configMap("a", "{x: '2', y.z: '3'}"), want: []string{"changed ConfigMap shop/a", `  changed data.x: "1" -> "2"`, `  added data["y.z"]:  -> "3"`, `  removed data.z: "1" -> `}},
		"Objects":   {reason: "in the order of identity", from: configMap("b", "{}"), to: configMap("c", "{x: w}") + configMap("a", "{}"), want: []string{"added ConfigMap shop/a", `  added apiVersion:  -> "v1"`, `  added data:  -> {}`, `  added kind:  -> "ConfigMap"`, `  added metadata.name:  -> "a"`, "removed ConfigMap shop/b", `  removed apiVersion: "v1" -> `, `  removed data: {} -> `, `  removed kind: "ConfigMap" -> `, `  removed metadata.name: "b" -> `, "added ConfigMap shop/c", `  added apiVersion:  -> "v1"`, `  added data.x:  -> "w"`, `  added kind:  -> "ConfigMap"`, `  added metadata.name:  -> "c"`}},
		"Named":     {reason: "containers go by name", from: fmt.Sprintf(deployment, "[{name: a, image: 'a:1'}, {name: b, image: 'b:1'}]"), to: fmt.Sprintf(deployment, "[{name: m, image: m}, {name: a, image: 'a:1'}, {name: b, image: 'b:2'}]"), want: []string{"changed Deployment.apps shop/web", `  changed spec.template.spec.containers[b].image: "b:1" -> "b:2"`, `  added spec.template.spec.containers[m].image:  -> "m"`, `  added spec.template.spec.containers[m].name:  -> "m"`}},
		"Order":     {reason: "another order is one difference", from: fmt.Sprintf(deployment, "[{name: a}, {name: b}]"), to: fmt.Sprintf(deployment, "[{name: b}, {name: a}]"), want: []string{"changed Deployment.apps shop/web", `  changed spec.template.spec.containers: "order: a, b" -> "order: b, a"`}},
		"Ports":     {reason: "ports go by number and protocol", from: service("[{port: 80, targetPort: 1}, {port: 53, protocol: UDP}]"), to: service("[{port: 53, protocol: UDP}, {port: 80, protocol: TCP, targetPort: 2}]"), want: []string{"changed Service shop/s", `  added spec.ports[80/TCP].protocol:  -> "TCP"`, `  changed spec.ports[80/TCP].targetPort: 1 -> 2`, `  changed spec.ports: "order: 80/TCP, 53/UDP" -> "order: 53/UDP, 80/TCP"`}},
		"Scalars":   {reason: "lists of plain values are shown as a whole", from: fmt.Sprintf(deployment, "[{name: a, args: [x, z]}]"), to: fmt.Sprintf(deployment, "[{name: a, args: [w, x, z]}]"), want: []string{"changed Deployment.apps shop/web", `  changed spec.template.spec.containers[a].args: ["x", "z"] -> ["w", "x", "z"]`}},
		"Type":      {reason: "a number is not its text", from: fmt.Sprintf(deployment, "[{name: a, x: 1}]"), to: fmt.Sprintf(deployment, "[{name: a, x: '1'}]"), want: []string{"changed Deployment.apps shop/web", `  changed spec.template.spec.containers[a].x: 1 -> "1"`}},
		"Version":   {reason: "another version is the same object", from: "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: web}\n", to: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n", want: []string{"changed Deployment.apps shop/web", `  changed apiVersion: "apps/v1beta1" -> "apps/v1"`, `  added metadata.namespace:  -> "shop"`}},
		"Terminals": {reason: "no terminal control characters", from: configMap("a", `{x: "1"}`), to: configMap("a", `{x: "\e[2J\u009b1"}`), want: []string{"changed ConfigMap shop/a", `  changed data.x: "1" -> "\x1b[2J\u009b1"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, _ := objectdiff.Compare(objects(t, tc.from), objects(t, tc.to), "shop")
			if diff := cmp.Diff(tc.want, lines(found)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// planted values must not appear in any form.
func TestSecretsAreNeverTold(t *testing.T) {
	t.Parallel()
	secret := func(value string) string {
		encoded := base64.StdEncoding.EncodeToString([]byte(value))
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  annotations:\n    kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"p\":\"%s\"}}'\ntype: Opaque\ndata: {p: %s, same: c2FtZQ==}\nstringData: {q: %s}\n", encoded, encoded, value)
	}
	// A malformed Secret must not reveal values either.
	malformed := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: m}\ndata: %s\nstringData: [{name: %s, deep: %s}]\n", value, value, value)
	}
	// A null value has no items and is shown as a whole.
	applied := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"p\":\"%s\"}}'}\n", value)
	}
	null := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: null}\n"
	empty := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: null}\ndata: null\nstringData: null\n"
	one, two := "planted-hunter2", "planted-correct-horse-battery-staple-of-another-length"
	for name, pair := range map[string][2]string{
		"changed": {secret(one), secret(two)}, "added": {"", secret(one)}, "removed": {secret(one), ""},
		"annotations were null": {null, applied(one)}, "annotations became null": {applied(one), null},
		"all was null": {empty, secret(one)}, "all became null": {secret(one), empty},
		"malformed": {malformed(one), malformed(two)}, "malformed added": {"", malformed(one)}, "mended": {malformed(one), strings.ReplaceAll(secret(two), "name: s", "name: m")},
	} {
		found, _ := objectdiff.Compare(objects(t, pair[0]), objects(t, pair[1]), "shop")
		text := strings.Join(lines(found), "\n")
		for _, value := range []string{one, two, base64.StdEncoding.EncodeToString([]byte(one)), base64.StdEncoding.EncodeToString([]byte(two))} {
			for n := 8; n <= len(value); n += 4 { // no part of it either
				if strings.Contains(text, value[:n]) {
					t.Fatalf("%s: %q is in\n%s", name, value[:n], text)
				}
			}
		}
		if !strings.Contains(text, objectdiff.Masked) {
			t.Errorf("%s: the difference is not shown:\n%s", name, text)
		}
		if name == "changed" && (strings.Contains(text, "same") || !strings.Contains(text, "changed data.p: (hidden) -> (hidden)")) {
			t.Errorf("equal and different values look the same:\n%s", text)
		}
	}
}

func TestLongValuesAreCutWhereTheyDiffer(t *testing.T) {
	t.Parallel()
	file := func(tail string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {f: \"" + strings.Repeat("é", 5000) + tail + strings.Repeat("x", 5000) + "\"}\n"
	}
	found, _ := objectdiff.Compare(objects(t, file("old")), objects(t, file("new")), "")
	f := found[0].Fields[0]
	if !strings.Contains(f.Old, "old") || !strings.Contains(f.New, "new") || len(f.Old) > 300 || !strings.HasPrefix(f.Old, "…") || !strings.HasSuffix(f.Old, "…") {
		t.Errorf("%s -> %s", f.Old, f.New)
	}
}

func TestWhatIsLeftOffIsCounted(t *testing.T) {
	t.Parallel()
	var many []manifest.Object
	for i := range 100 {
		data := map[string]any{}
		for j := range 300 {
			data[fmt.Sprint(j)] = "x"
		}
		ref := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("a%03d", i)}
		many = append(many, manifest.Object{Ref: ref, Content: map[string]any{"data": data}})
	}
	found, sum := objectdiff.Compare(nil, many, "")
	fields, more := 0, 0
	for _, o := range found {
		fields, more = fields+len(o.Fields), more+o.More
	}
	if len(found) != 100 || sum.Added != 100 || fields > 5000 || fields+more != 100*300 {
		t.Errorf("%d objects, %d fields, %d more", len(found), fields, more)
	}
}

// FuzzCompare checks that all objects can be compared, and that the result is symmetric.
func FuzzCompare(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: [{name: 1}, {name: 2}]\n"), []byte("apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: {}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: null\n"), []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: []}\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		from, errA := manifest.Parse("a", a)
		to, errB := manifest.Parse("b", b)
		if errA != nil || errB != nil {
			return
		}
		forth, _ := objectdiff.Compare(from, to, "d")
		back, _ := objectdiff.Compare(to, from, "d")
		if len(forth) != len(back) {
			t.Fatalf("%d objects differ in one direction and %d in the other", len(forth), len(back))
		}
		for i := range forth {
			if forth[i].Ref.Name != back[i].Ref.Name || len(forth[i].Fields)+forth[i].More != len(back[i].Fields)+back[i].More {
				t.Fatalf("%+v and %+v", forth[i], back[i])
			}
		}
	})
}
