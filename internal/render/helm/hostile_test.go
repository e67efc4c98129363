package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/ignore"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

func archiveOf(t *testing.T, files map[string]string) string {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	out := tar.NewWriter(zipped)
	for name, content := range files {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func bomb() string {
	text := "l0: &l0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 9), ","))
	}
	return text
}

// covers: G9, G10
func TestHostileCharts(t *testing.T) {
	t.Parallel()
	subchart := "apiVersion: v2\nname: sub\nversion: 0.1.0\n"
	nested := archiveOf(t, map[string]string{"sub/Chart.yaml": subchart})
	for range maxArchives + 1 {
		nested = archiveOf(t, map[string]string{"sub/Chart.yaml": subchart, "sub/charts/sub-0.1.0.tgz": nested})
	}
	zeros := archiveOf(t, map[string]string{"sub/Chart.yaml": subchart, "sub/zeros": strings.Repeat("\x00", 20<<20)})
	tests := []struct {
		reason string
		files  map[string]string
		helm   fleet.Helm
		want   string
	}{
		{"a values file above the repository", nil, fleet.Helm{ValuesFiles: []string{"../../../etc/passwd"}}, "leaves the repository"},
		{"an absolute values file is of the repository", nil, fleet.Helm{ValuesFiles: []string{"/etc/passwd"}}, "no such values file"},
		{"a link out of the repository", map[string]string{"templates/x.yaml": memtree.Link("../../../../etc/passwd")}, fleet.Helm{}, "leads out of the repository"},
		{"an absolute link", map[string]string{"x": memtree.Link("/etc/passwd")}, fleet.Helm{}, "absolute path"},
		{"a link to its own folder", map[string]string{"templates/x": memtree.Link("..")}, fleet.Helm{}, "that contains it"},
		{"a broken link", map[string]string{"x": memtree.Link("none")}, fleet.Helm{}, "without a target"},
		{"a submodule", map[string]string{"charts/sub": memtree.Submodule}, fleet.Helm{}, "submodule"},
		{"a pointer of Git LFS", map[string]string{"charts/sub-1.0.0.tgz": "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n"}, fleet.Helm{}, "Git LFS"},
		{"aliases that multiply in values", map[string]string{"values.yaml": bomb()}, fleet.Helm{}, "expand to too much"},
		{"aliases that multiply in a values file", map[string]string{"v.yaml": bomb()}, fleet.Helm{ValuesFiles: []string{"v.yaml"}}, "expand to too much"},
		{"aliases that multiply in values of the deployment", nil, fleet.Helm{Values: bomb()}, "expand to too much"},
		{"aliases that multiply in Chart.yaml", map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\nannotations:\n  x: y\n" + bomb()}, fleet.Helm{}, "expand to too much"},
		{"aliases that multiply in an archive", map[string]string{"charts/sub-0.1.0.tgz": archiveOf(t, map[string]string{"sub/Chart.yaml": subchart, "sub/values.yaml": bomb()})}, fleet.Helm{}, "expand to too much"},
		{"an enormous Chart.yaml", map[string]string{"Chart.yaml": "description: " + strings.Repeat("x", maxChartFile)}, fleet.Helm{}, "larger than"},
		{"archives that unpack to too much", map[string]string{"charts/a-1.0.0.tgz": zeros, "charts/b-1.0.0.tgz": zeros, "charts/c-1.0.0.tgz": zeros, "charts/d-1.0.0.tgz": zeros}, fleet.Helm{}, "unpack to more than"},
		{"archives in archives", map[string]string{"charts/sub-0.1.0.tgz": nested}, fleet.Helm{}, "archives in archives"},
		{"an archive with a path out of it", map[string]string{"charts/sub-0.1.0.tgz": archiveOf(t, map[string]string{"sub/../../x": "y"})}, fleet.Helm{}, "parent directory"},
		{"an archive with an absolute path", map[string]string{"charts/sub-0.1.0.tgz": archiveOf(t, map[string]string{"sub//etc/passwd": "y"})}, fleet.Helm{}, "absolute"},
		{"an archive that ends early", map[string]string{"charts/sub-0.1.0.tgz": nested[:len(nested)/2]}, fleet.Helm{}, "charts/sub-0.1.0.tgz"},
		{"templates that include each other for ever", map[string]string{"templates/x.yaml": `{{ define "a" }}{{ include "b" . }}{{ end }}{{ define "b" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`}, fleet.Helm{}, "nested reference"},
		{"a template that calls itself for ever", map[string]string{"templates/x.yaml": `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`}, fleet.Helm{}, "exceeded maximum template depth"},
		{"the environment", map[string]string{"templates/x.yaml": `{{ env "HOME" }}`}, fleet.Helm{}, `function "env" not defined`},
		{"endless parentheses", map[string]string{"templates/x.yaml": "{{ " + strings.Repeat("(", 100_000) + " }}"}, fleet.Helm{}, "templates/x.yaml"},
		{"endless YAML", map[string]string{"templates/x.yaml": strings.Repeat("[", 100_000)}, fleet.Helm{}, "templates/x.yaml"},
		{"endless values", map[string]string{"values.yaml": strings.Repeat("{a: ", 100_000)}, fleet.Helm{}, "values.yaml"},
		{"UTF-16", map[string]string{"templates/x.yaml": "\xff\xfea\x00:\x00 \x00b\x00"}, fleet.Helm{}, "templates/x.yaml"},
		{"invalid UTF-8", map[string]string{"templates/x.yaml": object("x") + "data: {x: \"\xff\xfe\"}\n"}, fleet.Helm{}, "templates/x.yaml"},
		{"a NUL byte", map[string]string{"templates/x.yaml": object("x") + "data: {x: \"a\x00\"}\n"}, fleet.Helm{}, "templates/x.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			_, _, err := build(t, chartOf(tt.files), tt.helm)
			wantProblem(t, err, tt.want)
		})
	}
}

// covers: G10 (nothing is looked up)
func TestReachesNothing(t *testing.T) {
	t.Parallel()
	got, _, err := build(t, chartOf(map[string]string{
		"templates/x.yaml":   object("x") + `data: {dns: "{{ getHostByName "example.com" }}", look: "{{ len (lookup "v1" "Pod" "" "") }}"}` + "\n",
		"values.schema.json": `{"properties": {"a": {"$ref": "file:///etc/passwd"}}}`,
	}), fleet.Helm{})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := got.Objects[0].Content["data"].(map[string]any)
	if data["dns"] != "" || data["look"] != "0" {
		t.Errorf("the cluster or network was accessed: %v", data)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "file:///etc/passwd") {
		t.Errorf("notes: %q", got.Notes)
	}
}

// FuzzIgnore shows that no rules of .helmignore break a build.
func FuzzIgnore(f *testing.F) {
	for _, seed := range []string{"*.bak\n", "/a/\n!b", "[", "**", "templates/t.yaml\n", "\\\n", "!", "/", "# x\r\n a b "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rules string) {
		files := chartOf(map[string]string{ignore.HelmIgnore: rules, "templates/t.yaml": object("a"), "a/b": "x"})
		_, err := Build(t.Context(), treefs.New(memtree.New(files), treefs.Limits{}), Request{Path: "charts/web", Helm: fleet.Helm{ReleaseName: "rel"}})
		if err != nil {
			wantProblem(t, err, "")
		}
	})
}

// FuzzValues checks that values are merged or refused, and that the result has no more keys than the input.
func FuzzValues(f *testing.F) {
	for _, seed := range [][2]string{{"a: 1", "a: {b: null}"}, {"a: {b: 1}", "a: null"}, {"- x", ""}, {"a: &a [*a]", "? {a: b}\n: c"}, {"a: 1\n---\nb: 2", "---\n"}, {"\xff\xfe", "\x00"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		first, err := mergeValues(map[string]any{}, "one", []byte(one))
		if err != nil {
			wantProblem(t, err, "one")
			return
		}
		second, err := mergeValues(first, "two", []byte(two))
		if err != nil {
			wantProblem(t, err, "two")
			return
		}
		for key := range first {
			if _, ok := second[key]; !ok {
				t.Fatalf("%q was lost", key)
			}
		}
	})
}
