package kustomize

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

func build(t *testing.T, path string, files map[string]string) (Result, *treefs.FS, error) {
	t.Helper()
	tree := treefs.New(memtree.New(files), treefs.Limits{})
	result, err := Build(t.Context(), tree, Request{Path: path})
	return result, tree, err
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

func bomb() string {
	text := "l0: &l0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 9), ","))
	}
	return text
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// Builds share a schema: these tests run one after the other.
//
// covers: G9, G10
func TestHostileTrees(t *testing.T) {
	plain := map[string]string{"a.yaml": configMap}
	tests := []struct {
		reason        string
		kustomization string
		files         map[string]string
		want          string
	}{
		{"a resource out of the repository", "resources: [../../../etc/passwd]", nil, "no such file or folder"},
		{"an absolute resource", "resources: [/etc/passwd]", nil, "etc/passwd"},
		{"a file above the folder", "configMapGenerator: [{name: x, files: [../secret]}]", map[string]string{"../secret": "s"}, "not in or below 'app'"},
		{"a link to a file above the folder", "configMapGenerator: [{name: x, files: [l]}]", map[string]string{"../secret": "s", "l": memtree.Link("../secret")}, "not in or below 'app'"},
		{"a link out of the repository", "resources: [l.yaml]", map[string]string{"l.yaml": memtree.Link("../../etc/passwd")}, "leads out of the repository"},
		{"an absolute link", "configMapGenerator: [{name: x, files: [l]}]", map[string]string{"l": memtree.Link("/etc/passwd")}, "absolute path"},
		{"links in a circle", "resources: [l]", map[string]string{"l": memtree.Link("m"), "m": memtree.Link("l")}, "circular"},
		{"a submodule", "resources: [m]", map[string]string{"m": memtree.Submodule}, "submodule"},
		{"a pointer of Git LFS", "resources: [a.yaml]", map[string]string{"a.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n"}, "Git LFS"},
		{"a base in a circle", "resources: [../b]", map[string]string{"../b/kustomization.yaml": "resources: [../app]"}, "cycle detected"},
		{"a base that is itself", "resources: [.]", nil, "cycle detected"},
		{"a component in a circle", "components: [../b]", map[string]string{"../b/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\ncomponents: [../app]"}, "cycle detected"},
		{"aliases that multiply", "resources: [a.yaml]", map[string]string{"a.yaml": configMap + "data:\n" + indent(bomb())}, "app/a.yaml: its aliases expand to too much"},
		{"aliases that multiply in a kustomization", "x: y\n" + bomb(), nil, "app/kustomization.yaml: its aliases expand to too much"},
		{"aliases that multiply in a patch", "resources: [a.yaml]\npatches:\n- patch: |-\n" + indent(configMap+"data:\n"+indent(bomb())), plain, "expand to too much"},
		{"aliases that multiply in a file of a generator", "configMapGenerator: [{name: x, files: [b.yaml]}]", map[string]string{"b.yaml": bomb()}, "expand to too much"},
		{"a URL as a resource", "resources: [\"https://example.com/x.yaml\"]", nil, "keep a copy in the repository"},
		{"a URL in capitals", "resources: [\"HTTPS://example.com/x.yaml\"]", nil, "keep a copy in the repository"},
		{"a repository without a scheme", "resources: [github.com/example/repo//base]", nil, "keep a copy in the repository"},
		{"a repository with a getter", "resources: [\"git::https://example.com/r.git\"]", nil, "keep a copy in the repository"},
		{"a repository by SSH", "resources: [\"ssh://git@example.com/r.git\"]", nil, "keep a copy in the repository"},
		{"a repository in a file", "resources: [\"file:///etc\"]", nil, "keep a copy in the repository"},
		{"a repository of a user", "bases: [\"git@example.com:x/y\"]", nil, "keep a copy in the repository"},
		{"a remote component", "components: [\"https://example.com/r.git\"]", nil, "keep a copy in the repository"},
		{"a remote patch", "resources: [a.yaml]\npatches: [{path: \"https://example.com/p.yaml\"}]", plain, "keep a copy in the repository"},
		{"a remote old patch", "resources: [a.yaml]\npatchesStrategicMerge: [\"https://example.com/p.yaml\"]", plain, "keep a copy in the repository"},
		{"a remote file of a generator", "configMapGenerator: [{name: x, files: [\"k=https://example.com/p\"]}]", nil, "keep a copy in the repository"},
		{"a remote schema", "resources: [a.yaml]\nopenapi: {path: \"https://example.com/p.json\"}", plain, "keep a copy in the repository"},
		{"a remote configuration", "resources: [a.yaml]\nconfigurations: [\"https://example.com/p.yaml\"]", plain, "keep a copy in the repository"},
		{"a remote generator", "generators: [\"https://example.com/p.yaml\"]", nil, "keep a copy in the repository"},
		{"a remote patch in a transformer", "resources: [a.yaml]\ntransformers: [t.yaml]", map[string]string{"a.yaml": configMap, "t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: http://example.com/x"}, "keep a copy in the repository"},
		{"a remote patch in a transformer inline", "resources: [a.yaml]\ntransformers:\n- |-\n" + indent("apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: http://example.com/x"), plain, "keep a copy in the repository"},
		{"a remote patch in a transformer that escapes its kind", "resources: [a.yaml]\ntransformers: [t.yaml]", map[string]string{"a.yaml": configMap, "t.yaml": "apiVersion: \"buil\\x74in\"\nkind: PatchTransformer\nmetadata: {name: t}\npath: http://example.com/x"}, "keep a copy in the repository"},
		{"a remote patch in a transformer in a list", "resources: [a.yaml]\ntransformers: [t.yaml]", map[string]string{"a.yaml": configMap, "t.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: t}\n  path: http://example.com/x"}, "keep a copy in the repository"},
		{"helm in a generator", "generators: [g.yaml]", map[string]string{"g.yaml": "apiVersion: builtin\nkind: HelmChartInflationGenerator\nmetadata: {name: g}\nname: x"}, "run no programs"},
		{"helm in a base", "resources: [../b]", map[string]string{"../b/kustomization.yaml": "helmCharts: [{name: x}]"}, "b/kustomization.yaml: helmCharts"},
		{"a container", "resources: [a.yaml]\ntransformers: [t.yaml]", map[string]string{"a.yaml": configMap, "t.yaml": "apiVersion: x/v1\nkind: F\nmetadata: {name: f, annotations: {config.kubernetes.io/function: \"container: {image: x}\"}}"}, "run no programs"},
		{"a program", "generators: [t.yaml]", map[string]string{"t.yaml": "apiVersion: x/v1\nkind: F\nmetadata: {name: f, annotations: {config.kubernetes.io/function: \"exec: {path: ./x}\"}}"}, "run no programs"},
		{"a NUL byte", "resources: [a.yaml]", map[string]string{"a.yaml": configMap + "data: {x: \"a\x00\"}"}, "a.yaml"},
		{"invalid UTF-8", "resources: [a.yaml]", map[string]string{"a.yaml": configMap + "data: {x: \"\xff\"}"}, "a.yaml"},
		{"endless YAML", "resources: [a.yaml]", map[string]string{"a.yaml": strings.Repeat("[", 100_000)}, "a.yaml"},
		{"a JSON patch that is none", "resources: [a.yaml]\npatches: [{target: {kind: ConfigMap}, patch: \"[{op: remove, path: /data/x}]\"}]", plain, "path: /data/x"},
		{"a JSON patch with a comma too many", "resources: [a.yaml]\npatches: [{target: {kind: ConfigMap}, patch: '[{\"op\": \"remove\", \"path\": \"/data/x\"},]'}]", plain, `\"path\": \"/data/x\"`},
		{"a folder that is not there", "resources: [x]", nil, "there is no such file or folder"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			files := map[string]string{"app/kustomization.yaml": tt.kustomization + "\n"}
			for name, content := range tt.files {
				if above, ok := strings.CutPrefix(name, "../"); ok {
					files[above] = content
				} else {
					files["app/"+name] = content
				}
			}
			_, _, err := build(t, "app", files)
			var user *treefs.Error
			if !errors.As(err, &user) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a user error with %q", err, tt.want)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestTextsThatLookRemoteAreLeftAlone(t *testing.T) {
	result, _, err := build(t, ".", map[string]string{
		"kustomization.yaml": "configMapGenerator: [{name: a, literals: [\"u=https://example.com\"], options: {annotations: {path: \"https://example.com\"}}}]\n" +
			"commonAnnotations: {path: \"https://example.com\", resources: git@example.com}\n",
	})
	if err != nil || len(result.Objects) != 1 {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestResult(t *testing.T) {
	result, tree, err := build(t, "/prod/", map[string]string{
		"base/kustomization.yaml": "resources: [a.yaml]\nopenapi: {path: s.json}\ncommonLabels: {x: z}\n", "base/a.yaml": configMap,
		"base/s.json":        "{}",
		"prod/Kustomization": "resources: [../base]\n", "unrelated/x": "1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Objects) != 1 || result.Objects[0].Source != "prod/Kustomization" || !result.SetsOpenAPI {
		t.Errorf("got %+v", result)
	}
	if len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "base/kustomization.yaml: 'commonLabels' is deprecated") {
		t.Errorf("notes: %q", result.Notes)
	}
	want := []string{
		"f base", "f base/Kustomization", "f base/a.yaml", "f base/kustomization.yaml", "f base/kustomization.yml", "f base/s.json",
		"f prod", "f prod/Kustomization", "f prod/kustomization.yaml", "f prod/kustomization.yml",
	}
	if diff := cmp.Diff(want, tree.Reads()); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	for path, want := range map[string]string{
		"none": "there is no such folder", "a.yaml": "a file, but the folder", "dir": "no kustomization: the folder contains none of",
	} {
		_, _, err := build(t, path, map[string]string{"a.yaml": configMap, "dir/a.yaml": configMap})
		var user *treefs.Error
		if !errors.As(err, &user) || user.Path != path || !strings.Contains(user.Problem, want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
