package corpus

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/helm"
)

// agree fails unless both gave the same objects, or both failed.
func agree(t *rapid.T, files map[string]string, theirs, got answer) {
	if (theirs.failure == "") == (got.failure == "") && cmp.Equal(theirs.objects, got.objects) {
		return
	}
	var tree strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&tree, "-- %s --\n%s\n", name, files[name])
	}
	t.Fatalf("real failure: %s\nour failure: %s\nobjects (-real +ours):\n%s\ntree:\n%s",
		theirs.failure, got.failure, cmp.Diff(theirs.objects, got.objects), tree.String())
}

// treeOf puts files on disk, below a folder of the test.
func treeOf(t rapid.TB, parent string, files map[string]string) string {
	dir, err := os.MkdirTemp(parent, "tree")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		where := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(where, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kustomizeFeatures are lines of a kustomization that go with each other and with any base below.
var kustomizeFeatures = []string{
	"namePrefix: pre-\n", "nameSuffix: -post\n", "namespace: made\n",
	"labels: [{pairs: {team: a}, includeSelectors: true}]\n", "commonAnnotations: {note: x}\n",
	"images: [{name: nginx, newTag: \"9\", newName: mirror/nginx}]\n", "replicas: [{name: web, count: 4}]\n",
	"configMapGenerator: [{name: settings, behavior: merge, literals: [a=changed, new=1]}]\n",
	"secretGenerator: [{name: extra, literals: [p=q], options: {labels: {s: t}}}]\n",
	"generatorOptions: {disableNameSuffixHash: true}\n",
	"patches: [{target: {kind: Deployment}, patch: \"- {op: add, path: /spec/paused, value: true}\"}]\n",
	"replacements: [{source: {kind: Service, fieldPath: metadata.name}, targets: [{select: {kind: Deployment}, fieldPaths: [metadata.annotations.svc], options: {create: true}}]}]\n",
	"components: [../comp]\n", "buildMetadata: [originAnnotations]\n", "sortOptions: {order: legacy}\n",
}

// covers: G8
func TestKustomizeCombinations(t *testing.T) {
	program := tool(t, "kustomize")
	parent := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		files := map[string]string{
			"base/kustomization.yaml": "resources: [all.yaml]\nconfigMapGenerator: [{name: settings, literals: [a=1]}]\n",
			"base/all.yaml":           someObjects,
			"comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {from: component}\n",
		}
		below := "base"
		for _, layer := range []string{"one", "two"}[:rapid.IntRange(1, 2).Draw(r, "layers")] {
			text := "resources: [../" + below + "]\n"
			for _, feature := range rapid.SliceOfNDistinct(rapid.SampledFrom(kustomizeFeatures), 1, 6, rapid.ID[string]).Draw(r, layer) {
				text += feature
			}
			files[layer+"/kustomization.yaml"] = text
			below = layer
		}
		dir := treeOf(r, parent, files)
		agree(r, files, runReal(t, dir, program, "build", filepath.Join(dir, below)), runKustomize(t, dir, below))
	})
}

const someObjects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "nginx:1", envFrom: [{configMapRef: {name: settings}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// chartFeatures are templates, each with its own object.
var chartFeatures = map[string]string{
	"values": "data: {v: {{ .Values | toJson | quote }}}", "tpl": "data: {v: {{ tpl .Values.text . | quote }}}",
	"range":   "data:\n{{- range $k, $v := .Values.map }}\n  {{ $k }}: {{ $v | quote }}\n{{- end }}",
	"include": "data: {v: {{ include \"name\" . }}}", "lookup": "data: {v: {{ lookup \"v1\" \"Pod\" \"\" \"\" | toJson | quote }}}",
	"files": "data: {v: {{ .Files.Get \"file.txt\" | quote }}}", "capabilities": "data: {v: {{ .Capabilities.KubeVersion.Minor | quote }}}",
	"number": "data: {v: {{ .Values.num | quote }}, i: {{ .Values.num | int64 | quote }}}",
	"sub":    "data: {v: {{ .Values.sub | toYaml | quote }}}", "nothing": "data: {v: {{ .Values.none | default \"x\" }}}",
	"hook": "data: {}", "required": "data: {v: {{ required \"no\" .Values.must }}}",
}

// covers: G8
func TestHelmCombinations(t *testing.T) {
	program := tool(t, "helm")
	parent := t.TempDir()
	someValue := rapid.SampledFrom([]string{"1", "1.5", "true", "null", "text", "\"{{ .Release.Name }}\"", "{a: 1, b: null}", "[1, {c: d}]", "12345678", "\"\""})
	rapid.Check(t, func(r *rapid.T) {
		files := map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{name: sub, version: 0.1.0, condition: sub.enabled, tags: [extra], import-values: [out]}]\n",
			"file.txt":   "some\ttext\n", "templates/_h.tpl": "{{ define \"name\" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}",
			"charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n", "charts/sub/values.yaml": "own: 1\nexports: {out: {imported: yes}}\n",
			"charts/sub/templates/t.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\ndata: {v: {{ .Values | toJson | quote }}}\n",
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(chartFeatures))), 1, 5, rapid.ID[string]).Draw(r, "templates") {
			metadata := "{name: " + name + "}"
			if name == "hook" {
				metadata = "{name: hook, annotations: {helm.sh/hook: post-install, helm.sh/hook-weight: \"2\"}}"
			}
			files["templates/"+name+".yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: " + metadata + "\n" + chartFeatures[name] + "\n"
		}
		args := []string{"template", "rel", "", "--include-crds", "--skip-tests"}
		req := helm.Request{Helm: fleet.Helm{ReleaseName: "rel"}}
		for _, name := range []string{"values.yaml", "one.yaml", "two.yaml"} {
			text := "text: hello {{ .Release.Name }}\n"
			for _, key := range []string{"map", "num", "must", "sub", "global", "tags", "imported"} {
				if rapid.Bool().Draw(r, name+" has "+key) {
					text += key + ": " + someValue.Draw(r, key) + "\n"
				}
			}
			files[name] = text
			if name != "values.yaml" {
				req.Helm.ValuesFiles = append(req.Helm.ValuesFiles, name)
			}
		}
		dir := treeOf(r, parent, files)
		args[2] = dir
		for _, name := range req.Helm.ValuesFiles {
			args = append(args, "--values", filepath.Join(dir, name))
		}
		agree(r, files, runReal(t, parent, program, args...), runHelm(t, dir, req))
	})
}
