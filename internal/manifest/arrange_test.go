package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// annotated is a ConfigMap with one annotation per pair.
func annotated(name string, pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  annotations:\n", name)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "    %s: %q\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

func parsed(t *testing.T, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// covers: A3
func TestArrange(t *testing.T) {
	t.Parallel()
	const wave, dependsOn = "kedge.dev/wave", "kedge.dev/depends-on"
	tests := map[string]struct {
		text string
		want string // "name wave.depth [needs]", in the order of the text
	}{
		"without annotations: kinds alone": {
			annotated("a") + annotated("b"), "a 0.0 [], b 0.0 []"},
		"waves, also negative, and those of Argo CD": {
			annotated("a", wave, "-3") + annotated("b", "argocd.argoproj.io/sync-wave", "7") + annotated("c", wave, "1", "argocd.argoproj.io/sync-wave", "2"),
			"a -3.0 [], b 7.0 [], c 1.0 []"},
		"a chain": {
			annotated("a") + annotated("b", dependsOn, "ConfigMap a") + annotated("c", dependsOn, "ConfigMap here/b, ConfigMap a"),
			"a 0.0 [], b 0.1 [a], c 0.2 [a b]"},
		"the form of cli-utils, under both names": {
			annotated("a") + annotated("b", "config.kubernetes.io/depends-on", "/namespaces/here/ConfigMap/a") + annotated("c", dependsOn, "/namespaces/here/ConfigMap/b"),
			"a 0.0 [], b 0.1 [a], c 0.2 [b]"},
		"an object in a lower wave is needed and adds no depth": {
			annotated("a", wave, "-1") + annotated("b", dependsOn, "ConfigMap a"), "a -1.0 [], b 0.0 [a]"},
		"an object in a Namespace needs the needs of the Namespace": {
			annotated("a") + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: nn, annotations: {kedge.dev/depends-on: ConfigMap here/a}}\n" +
				"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: nn}\n",
			"a 0.0 [], nn 0.1 [a], c 0.1 [a]"},
		"a custom resource needs the needs of its definition": {
			annotated("a") + `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {kedge.dev/depends-on: ConfigMap here/a}}
spec: {group: example.com, names: {kind: Widget}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
`,
			"a 0.0 [], widgets.example.com 0.1 [a], w 0.1 [a]"},
		"cluster-scoped objects, by name alone": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: nn}\n" +
				"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: m, annotations: {kedge.dev/depends-on: /Namespace/nn}}\n",
			"nn 0.0 [], m 0.1 [nn]"},
		"in the wave of its Namespace and in a later one": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: here, annotations: {kedge.dev/wave: \"-1\"}}\n" + annotated("a", wave, "-1") + annotated("b"),
			"here -1.0 [], a -1.0 [], b 0.0 []"},
		"one that may need no namespace, before the Namespace of the bundle": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: here}\n" +
				"---\napiVersion: example.com/v1\nkind: ClusterThing\nmetadata: {name: c, annotations: {kedge.dev/wave: \"-1\"}}\n",
			"here 0.0 [], c -1.0 []"},
	}
	for reason, tt := range tests {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			objects := parsed(t, tt.text)
			order, err := manifest.Arrange(objects, "here")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, o := range objects {
				var needs []string
				for _, on := range order.Needs[i] {
					needs = append(needs, objects[on].Ref.Name)
				}
				got = append(got, fmt.Sprintf("%s %d.%d %v", o.Ref.Name, order.Places[i].Wave, order.Places[i].Depth, needs))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// A commit without a valid order is refused completely, so that nothing of it is applied.
//
// covers: A3
// covers: A12
func TestNewSetRefusesAnOrderThatCannotBeKept(t *testing.T) {
	t.Parallel()
	const wave, dependsOn = "kedge.dev/wave", "kedge.dev/depends-on"
	tests := map[string]struct {
		text string
		want []string
	}{
		"no integer":         {annotated("a", wave, "first"), []string{"ConfigMap here/a", "kedge.dev/wave", `"first"`}},
		"no integer of Argo": {annotated("a", "argocd.argoproj.io/sync-wave", "1.5"), []string{"ConfigMap here/a", "sync-wave"}},
		"a huge integer":     {annotated("a", wave, "3000000000"), []string{"ConfigMap here/a"}},
		"not in the bundle":  {annotated("a", dependsOn, "Deployment.apps web"), []string{"ConfigMap here/a", "Deployment.apps web", "not in the bundle"}},
		"elsewhere":          {annotated("a", dependsOn, "ConfigMap there/b") + annotated("b"), []string{"ConfigMap here/a", "there/b"}},
		"no reference":       {annotated("a", dependsOn, "web"), []string{"ConfigMap here/a", `"web"`}},
		"an empty one":       {annotated("a", dependsOn, "ConfigMap b,") + annotated("b"), []string{"ConfigMap here/a"}},
		"itself":             {annotated("a", dependsOn, "ConfigMap a"), []string{"ConfigMap here/a", "itself"}},
		"a circle": {annotated("a", dependsOn, "ConfigMap b") + annotated("b", dependsOn, "ConfigMap a"),
			[]string{"ConfigMap here/a needs ConfigMap here/b needs ConfigMap here/a"}},
		"a Namespace that waits for an object in it": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: here, annotations: {kedge.dev/depends-on: ConfigMap here/a}}\n" + annotated("a"),
			[]string{"Namespace here", "ConfigMap here/a"}},
		"a later wave": {annotated("a", dependsOn, "ConfigMap b") + annotated("b", wave, "2"), []string{"ConfigMap here/a", "ConfigMap here/b", "wave 2"}},
		"before its Namespace": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: here}\n" + annotated("a", "argocd.argoproj.io/sync-wave", "-1"),
			[]string{"ConfigMap here/a: is in wave -1", "Namespace here, is in wave 0", "move Namespace here to wave -1 or lower, or this to wave 0 or higher"}},
		"before the Namespace that it names, of an unknown kind": {
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: nn, annotations: {kedge.dev/wave: \"2\"}}\n" +
				"---\napiVersion: example.com/v1\nkind: Thing\nmetadata: {name: c, namespace: nn, annotations: {kedge.dev/wave: \"1\"}}\n",
			[]string{"nn/c: is in wave 1", "Namespace nn, is in wave 2"}},
		"before the definition of its kind": {`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {kedge.dev/wave: "1"}}
spec: {group: example.com, names: {kind: Widget}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
`, []string{"here/w: is in wave 0", "widgets.example.com, is in wave 1", "to wave 0 or lower"}},
		"no mode of drift": {annotated("a", "kedge.dev/drift", "Report"), []string{"ConfigMap here/a", "kedge.dev/drift"}},
	}
	for reason, tt := range tests {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			_, err := manifest.NewSet(parsed(t, tt.text), "here")
			var mistake *manifest.Error
			if !errors.As(err, &mistake) || !strings.HasPrefix(mistake.Source, "a.yaml") {
				t.Fatalf("got %v, want a user error in a.yaml", err)
			}
			if slices.ContainsFunc(tt.want, func(part string) bool { return !strings.Contains(err.Error(), part) }) {
				t.Errorf("got %q, want %q in it", err, tt.want)
			}
		})
	}
}

func FuzzArrange(f *testing.F) {
	f.Add("ConfigMap b", "1", "ConfigMap a", "0")
	f.Add("/namespaces/here/ConfigMap/b", "-1", "Namespace here, ConfigMap there/b", "")
	f.Fuzz(func(t *testing.T, onA, waveA, onB, waveB string) {
		object := func(name, on, wave string) manifest.Object {
			annotations := map[string]any{"kedge.dev/depends-on": on}
			if wave != "" {
				annotations["kedge.dev/wave"] = wave
			}
			return manifest.Object{Ref: ref("", "ConfigMap", "", name), Content: map[string]any{
				"metadata": map[string]any{"name": name, "annotations": annotations},
			}}
		}
		order, err := manifest.Arrange([]manifest.Object{object("a", onA, waveA), object("b", onB, waveB)}, "here")
		if err != nil {
			return
		}
		for i, needs := range order.Needs {
			for _, on := range needs {
				if order.Places[on].Compare(order.Places[i]) >= 0 {
					t.Errorf("%d needs %d, which does not come before it", i, on)
				}
			}
		}
	})
}
