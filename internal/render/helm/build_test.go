package helm

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// chartOf is a chart in the folder charts/web, with files below it.
func chartOf(files map[string]string) map[string]string {
	out := map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"}
	for name, content := range files {
		out["charts/web/"+name] = content
	}
	return out
}

func build(t *testing.T, files map[string]string, helm fleet.Helm) (Result, *treefs.FS, error) {
	t.Helper()
	if helm.ReleaseName == "" {
		helm.ReleaseName = "rel"
	}
	tree := treefs.New(memtree.New(files), treefs.Limits{})
	result, err := Build(t.Context(), tree, Request{Path: "charts/web", Helm: helm})
	return result, tree, err
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"

func object(name string) string { return strings.Replace(configMap, "%s", name, 1) }

func hook(name, events, weight string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: " + name + "\n  annotations: {helm.sh/hook: \"" + events + "\", helm.sh/hook-weight: \"" + weight + "\"}\n"
}

// waves returns the wave that each object says, by name.
func waves(objects []manifest.Object) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		wave, _ := waveOf(o)
		out[o.Ref.Name] = wave
	}
	return out
}

func TestHooksBecomeWaves(t *testing.T) {
	t.Parallel()
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n"
	tests := []struct {
		reason string
		files  map[string]string
		want   map[string]string
		notes  []string
	}{
		{"weights become waves around everything else", map[string]string{
			"templates/a.yaml": object("plain"), "templates/h1.yaml": hook("late", "post-install,post-upgrade", "0"),
			"templates/h2.yaml": hook("second", "pre-install", "5"), "templates/h3.yaml": hook("first", "pre-upgrade", "-3"),
			"templates/h4.yaml": hook("last", "post-install", "1"), "templates/h5.yaml": hook("also-second", "pre-install", "5"),
		}, map[string]string{"plain": "", "first": "-2", "second": "-1", "also-second": "-1", "late": "1", "last": "2"}, []string{
			"hooks of post-install are applied as a wave after everything else, each time that they change: Job last, Job late",
			"hooks of post-upgrade are applied as a wave after everything else, each time that they change: Job late",
			"hooks of pre-install are applied as a wave before everything else, each time that they change: Job also-second, Job second",
			"hooks of pre-upgrade are applied as a wave before everything else, each time that they change: Job first",
		}},
		{"waves of the chart are within", map[string]string{
			"templates/a.yaml":  strings.Replace(object("low"), "name: low", "name: low, annotations: {kedge.dev/wave: \"-4\"}", 1),
			"templates/b.yaml":  strings.Replace(object("high"), "name: high", "name: high, annotations: {argocd.argoproj.io/sync-wave: \"7\"}", 1),
			"templates/h1.yaml": hook("pre", "pre-install", "0"), "templates/h2.yaml": hook("post", "post-install", "0"),
		}, map[string]string{"low": "-4", "high": "7", "pre": "-5", "post": "8"}, nil},
		{"a hook keeps its own wave", map[string]string{
			"templates/h.yaml": strings.Replace(hook("own", "pre-install", "0"), "annotations: {", "annotations: {kedge.dev/wave: \"3\", ", 1),
		}, map[string]string{"own": "3"}, nil},
		{"definitions and namespaces come before hooks", map[string]string{
			"crds/c.yaml": crd, "templates/n.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: made}\n", "templates/a.yaml": object("plain"),
			"templates/h.yaml": hook("pre", "pre-install", "0"),
		}, map[string]string{"things.example.com": "-2", "made": "-2", "plain": "", "pre": "-1"}, nil},
		{"without such hooks they do not change", map[string]string{"crds/c.yaml": crd, "templates/h.yaml": hook("post", "post-install", "0")},
			map[string]string{"things.example.com": "", "post": "1"}, nil},
		{"an object that is a hook too is there once", map[string]string{
			"templates/a.yaml": object("same"), "templates/h.yaml": strings.Replace(object("same"), "name: same", "name: same, namespace: default, annotations: {helm.sh/hook: pre-install}", 1),
			"templates/i.yaml": hook("twice", "pre-install", "0"), "templates/j.yaml": hook("twice", "post-install", "0"),
		}, map[string]string{"same": "", "twice": "-1"}, nil},
		{"others are omitted", map[string]string{
			"templates/a.yaml": object("plain"), "templates/h1.yaml": hook("test", "test", "0"), "templates/h2.yaml": hook("bye", "pre-delete,post-rollback", "0"),
			"templates/h3.yaml": hook("odd", "crd-install", "0"),
		}, map[string]string{"plain": ""}, []string{
			`hooks of the unknown type "crd-install" are left out`,
			"hooks of post-rollback are left out: Job bye", "hooks of pre-delete are left out: Job bye", "hooks of test are left out: Job test",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			got, _, err := build(t, chartOf(tt.files), fleet.Helm{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, waves(got.Objects)); diff != "" {
				t.Errorf("waves (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notes, got.Notes); tt.notes != nil && diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if _, err := manifest.NewSet(got.Objects, "default"); err != nil {
				t.Errorf("the waves cannot be kept: %v", err)
			}
		})
	}
}

func TestSourcesArePathsInTheRepository(t *testing.T) {
	t.Parallel()
	got, tree, err := build(t, chartOf(map[string]string{
		"templates/a.yaml": object("a"), "charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"charts/sub/templates/b.yaml": object("b"), "crds/c.yaml": strings.ReplaceAll(object("c"), "ConfigMap", "Thing"),
	}), fleet.Helm{})
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, o := range got.Objects {
		sources = append(sources, o.Source)
	}
	if diff := cmp.Diff([]string{"charts/web/crds/c.yaml", "charts/web/charts/sub/templates/b.yaml", "charts/web/templates/a.yaml"}, sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"t charts/web"}, tree.Reads()); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}

func TestReadsLeaveOutWhatIsIgnored(t *testing.T) {
	t.Parallel()
	files := chartOf(map[string]string{".helmignore": "big/\n", "big/x": "1", "templates/a.yaml": object("a")})
	files["envs/prod.yaml"] = "a: 1\n"
	_, tree, err := build(t, files, fleet.Helm{ValuesFiles: []string{"/envs/prod.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"f charts/web/.helmignore", "f charts/web/Chart.yaml", "f envs/prod.yaml", "l charts/web", "t charts/web/templates"}
	if diff := cmp.Diff(want, tree.Reads()); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}

func TestSameChartSameObjects(t *testing.T) {
	t.Parallel()
	files := chartOf(map[string]string{"values.yaml": "m: {c: 1, a: 2, b: 3}\n", "templates/a.yaml": object("a") + "data:\n  {{- range $k, $v := .Values.m }}\n  {{ $k }}: {{ $v | quote }}\n  {{- end }}\n"})
	first, _, err := build(t, files, fleet.Helm{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		again, _, err := build(t, files, fleet.Helm{})
		if err != nil || first.Objects[0].Hash() != again.Objects[0].Hash() {
			t.Fatalf("a second render differs: %v", err)
		}
	}
}

func TestVolatile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason   string
		template string
		files    map[string]string
		want     bool
	}{
		{"nothing of the kind", `{{ .Values.x | quote }} {{ toDate "2006-01-02" "2020-01-01" }}`, nil, false},
		{"the time", `{{ now | date "2006" }}`, nil, true},
		{"a random name", `{{ randAlphaNum 5 }}`, nil, true},
		{"in a variable", `{{ $x := uuidv4 }}{{ $x }}`, nil, true},
		{"in an argument", `{{ printf "%s" (htpasswd "u" "p") }}`, nil, true},
		{"in a branch that is not executed", `{{ if .Values.no }}{{ genPrivateKey "rsa" }}{{ end }}`, nil, true},
		{"in a branch after else", `{{ with .Values.no }}x{{ else }}{{ randInt 1 9 }}{{ end }}`, nil, true},
		{"in a field of its result", `{{ (genCA "x" 1).Cert | len }}`, nil, true},
		{"in a template that is used", `{{ include "x" . }}`, map[string]string{"templates/_x.tpl": `{{ define "x" }}{{ template "y" . }}{{ end }}{{ define "y" }}{{ now }}{{ end }}`}, true},
		{"in an unused template", `{{ include "x" . }}`, map[string]string{"templates/_x.tpl": `{{ define "x" }}a{{ end }}{{ define "y" }}{{ now }}{{ end }}`}, false},
		{"in a template whose name is computed", `{{ include (printf "%s" "y") . }}`, map[string]string{"templates/_x.tpl": `{{ define "y" }}{{ now | date "2006" }}{{ end }}`}, true},
		{"in the notes", `a`, map[string]string{"templates/NOTES.txt": `{{ now }}`}, false},
		{"in a value that is used as a template", `{{ tpl .Values.t . }}`, map[string]string{"values.yaml": "t: '{{ randAlpha 3 }}'\n"}, true},
		{"in a value that is none", `{{ .Values.t | quote }}`, map[string]string{"values.yaml": "t: '{{ randAlpha 3 }}'\n"}, false},
		{"in a text that is used as a template", `{{ tpl "{{ randAlpha 3 }}" . }}`, nil, true},
		{"in a text that is none", `{{ "{{ randAlpha 3 }}" | quote }}`, nil, false},
		{"in a file that is used as a template", `{{ tpl (.Files.Get "f.txt") . }}`, map[string]string{"f.txt": "{{ shuffle \"abc\" }}"}, true},
		{"the order of a map", `{{ keys .Values.m | join "," }}`, map[string]string{"values.yaml": "m: {a: 1, b: 2}\n"}, true},
		{"the sorted order of a map", `{{ keys .Values.m | sortAlpha | join "," }} {{ has "a" (keys .Values.m) }}`, map[string]string{"values.yaml": "m: {a: 1, b: 2}\n"}, false},
		{"in a subchart that is off", `a`, map[string]string{
			"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{name: sub, version: 0.1.0, condition: sub.enabled}]\n",
			"values.yaml": "sub: {enabled: false}\n", "charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
			"charts/sub/templates/x.yaml": "{{ now }}",
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"templates/a.yaml": object("a") + "data:\n  x: |\n    " + tt.template + "\n"}
			for name, content := range tt.files {
				files[name] = content
			}
			got, _, err := build(t, chartOf(files), fleet.Helm{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Volatile != tt.want {
				t.Errorf("volatile: %t, want %t", got.Volatile, tt.want)
			}
		})
	}
}

func wantProblem(t *testing.T, err error, want string) {
	t.Helper()
	var user *treefs.Error
	if !errors.As(err, &user) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a user error with %q", err, want)
	}
}
