package cli_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/cli"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// renderProgram is the real kedge, which is its own renderer. It is built once, without cgo, into a folder that
// the system cleans up.
var renderProgram = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("KEDGE_BIN"); dir != "" {
		return filepath.Join(dir, "kedge"), nil
	}
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "kedge-render-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "./cmd/kedge")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	return filepath.Join(dir, "kedge"), cmd.Run()
})

// repository is a work tree with one of each kind of source.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		".git/HEAD":                      "ref: refs/heads/main\n",
		"plain/b.yaml":                   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {x: \"${X}\", z: 1.0}\n",
		"plain/a.json":                   `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`,
		"base/kustomization.yaml":        "resources: [c.yaml]\n",
		"base/c.yaml":                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		"overlay/kustomization.yaml":     "resources: [../base]\nnamePrefix: prod-\ncommonLabels: {a: b}\n",
		"charts/web/Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"charts/web/values.yaml":         "a: default\n",
		"charts/web/templates/t.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\", namespace: \"{{ .Release.Namespace }}\"}\ndata: {a: {{ .Values.a }}, b: {{ .Values.b | toJson | quote }}, k: {{ .Capabilities.KubeVersion.Version }}, api: \"{{ .Capabilities.APIVersions.Has \"x.io/v1\" }}\"}\n",
		"charts/web/templates/hook.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: test, annotations: {helm.sh/hook: test}}\n",
		"envs/prod.yaml":                 "a: from-a-file\n",
		"mine.yaml":                      "a: inline\n",
		"broken/kustomization.yaml":      "resources: [\"https://example.com/x.yaml\"]\n",
		"endless/Chart.yaml":             "apiVersion: v2\nname: endless\nversion: 1.0.0\n",
		"endless/templates/t.yaml":       "{{ len (until 1500000000) }}\n",
	} {
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

func renderIn(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	program, err := renderProgram()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), append([]string{"render"}, args...), cli.Options{Out: &stdout, Err: &stderr, RenderProgram: program})
	return stdout.String(), stderr.String(), code
}

// covers: G8, G11
func TestRender(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := repository(t)
	tests := []struct {
		reason, folder string
		args           []string
		want           []string // in what it prints
		notes          string   // beside it
	}{
		{"plain manifests in the order of the bundle", "plain", []string{"--variables", "X=5", "-o", "json"}, []string{
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n" +
				`{"apiVersion":"v1","data":{"x":"5","z":1},"kind":"ConfigMap","metadata":{"name":"b"}}` + "\n",
		}, ""},
		{"a base beside the folder", "overlay", nil, []string{"---\n# Source: overlay/kustomization.yaml\napiVersion: v1\nkind: ConfigMap\n", "name: prod-c\n"}, "'commonLabels' is deprecated"},
		{"a folder of a repository", ".", []string{"--path", "overlay", "-o", "name"}, []string{"ConfigMap prod-c\n"}, ""},
		{"a chart", "charts/web", []string{"--namespace", "shop"}, []string{"# Source: charts/web/templates/t.yaml\n", "name: web\n", "namespace: shop\n", "a: default\n", "api: \"false\"\n"}, "hooks of test are left out: Pod test"},
		{"a chart with everything", "charts/web", []string{
			"--helm-release", "rel", "--values-file", "/envs/prod.yaml", "--kube-version", "v1.30.1", "--api-versions", "x.io/v1",
		}, []string{"name: rel\n", "a: from-a-file\n", "k: v1.30.1\n", "api: \"true\"\n"}, ""},
		{"values of the deployment win", "charts/web", []string{"--values-file", "/envs/prod.yaml", "--values", filepath.Join(dir, "mine.yaml"), "--set", "b.c=3", "--set-string", "b.d=012"}, []string{"a: inline\n", "b: '{\"c\":3,\"d\":\"012\"}'\n"}, ""},
		{"stated to be plain", "base", []string{"--kind", "plain", "--glob", "{c,d}.yaml", "-o", "name"}, []string{"ConfigMap c\n"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			out, errs, code := renderIn(t, append([]string{filepath.Join(dir, tt.folder)}, tt.args...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got %q, want %q in it", out, want)
				}
			}
			if !strings.Contains(errs, tt.notes) {
				t.Errorf("beside it is %q, want %q", errs, tt.notes)
			}
		})
	}
}

func TestRenderDigestNamesTheBundle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := repository(t)
	bundle, _, _ := renderIn(t, filepath.Join(dir, "overlay"), "-o", "json")
	sum := sha256.Sum256([]byte(bundle))
	digest, _, code := renderIn(t, filepath.Join(dir, "overlay"), "--digest")
	if want := "sha256:" + hex.EncodeToString(sum[:]) + "\n"; code != 0 || digest != want {
		t.Errorf("got %q and exit code %d, want %q", digest, code, want)
	}
}

// covers: G9, G10
func TestRenderNamesMistakes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := repository(t)
	tests := []struct {
		reason, folder string
		args           []string
		code           int
		want           string
	}{
		{"no such folder", "none", nil, 1, "none"},
		{"a base out of the repository", "overlay", []string{"--path", "."}, 1, "../base"},
		{"a remote base", "broken", nil, 1, "keep a copy in the repository"},
		{"a variable that is not defined", "plain", []string{"--var", "Y=1"}, 1, "X"},
		{"nothing to render", "envs", []string{"--glob", "*.toml"}, 1, "an empty result is refused"},
		{"values for what is no chart", "plain", []string{"--values-file", "x.yaml"}, 1, "is not a chart"},
		{"a chart that never ends", "endless", []string{"--render-timeout", "2s"}, 1, "was stopped"},
		{"a format that is none", "plain", []string{"-o", "xml"}, 2, "use one of yaml, json, name"},
		{"a kind that is none", "plain", []string{"--kind", "jsonnet"}, 2, "use one of plain, kustomize, helm"},
		{"too little memory", "plain", []string{"--render-memory", "1Mi"}, 2, "must be at least"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			out, errs, code := renderIn(t, append([]string{filepath.Join(dir, tt.folder)}, tt.args...)...)
			if code != tt.code || !strings.Contains(errs, tt.want) || out != "" {
				t.Errorf("exit code %d, %q, printed %q; want %d and %q", code, errs, out, tt.code, tt.want)
			}
		})
	}
}
