package corpus

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/filetree/disktree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/helm"
	"github.com/kedge-dev/kedge/internal/render/kustomize"
	"github.com/kedge-dev/kedge/internal/render/treefs"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// buildTools builds the real programs, or finds the built ones.
var buildTools = sync.OnceValues(func() (string, error) {
	if folder := os.Getenv("KEDGE_RENDER_TOOLS"); folder != "" {
		return folder, nil
	}
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(root, "hack", "rendertools", "build.sh"))
	cmd.Stderr = os.Stderr // progress: the first build takes minutes
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// tool returns the path of a real program. It skips the test with -short.
func tool(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the real kustomize and helm")
	}
	folder, err := buildTools()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, name)
}

// answer is the result of a renderer.
type answer struct {
	objects map[string]map[string]any // content by identity
	failure string                    // why there are none
}

// runReal runs a program and parses its output. home isolates it from the settings of the developer.
func runReal(t testing.TB, home, program string, args ...string) answer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "KUBECONFIG=/dev/null", "PATH=/nonexistent"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return answer{failure: strings.TrimSpace(errs.String())}
	}
	objects, err := parseLeniently(filepath.Base(program), out.String())
	if err != nil {
		return answer{failure: "printed something other than a set of objects: " + err.Error()}
	}
	return answerOf(objects, nil)
}

// parseLeniently parses the output of a program like the tools that apply it: the last of duplicate keys takes
// precedence.
func parseLeniently(source, text string) ([]manifest.Object, error) {
	var objects []manifest.Object
	for doc := range strings.SplitSeq("\n"+strings.TrimSuffix(text, "\n"), "\n---\n") {
		doc += "\n" // the line break was cut with the marker, and a block scalar may end with it
		if parsed, err := manifest.Parse(source, []byte(doc)); err == nil {
			objects = append(objects, parsed...)
			continue
		}
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return nil, err
		}
		parsed, err := manifest.Parse(source, data)
		if err != nil {
			return nil, err
		}
		objects = append(objects, parsed...)
	}
	return objects, nil
}

func answerOf(objects []manifest.Object, err error) answer {
	if err != nil {
		return answer{failure: err.Error()}
	}
	a := answer{objects: map[string]map[string]any{}}
	for _, o := range objects {
		key := o.Ref.Version + " " + o.Ref.String()
		for a.objects[key] != nil {
			key += " again"
		}
		a.objects[key] = o.Content
	}
	return a
}

// ours renders the folder as a tree of files.
func ours(t testing.TB, dir string) treefs.Files {
	t.Helper()
	tree, err := disktree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return treefs.New(tree, treefs.Limits{})
}

func runKustomize(t testing.TB, dir, path string) answer {
	t.Helper()
	result, err := kustomize.Build(context.Background(), ours(t, dir), kustomize.Request{Path: path})
	if err != nil {
		checkUserError(t, err)
		return answerOf(nil, err)
	}
	return answerOf(result.Objects, nil)
}

func runHelm(t testing.TB, dir string, req helm.Request) answer {
	t.Helper()
	result, err := helm.Build(context.Background(), ours(t, dir), req)
	if err != nil {
		checkUserError(t, err)
		return answerOf(nil, err)
	}
	return answerOf(withoutWaves(result.Objects), nil)
}

// checkUserError checks that an error caused by a tree is a user error.
func checkUserError(t testing.TB, err error) {
	t.Helper()
	var user *treefs.Error
	var file *manifest.Error
	if !errors.As(err, &user) && !errors.As(err, &file) {
		t.Errorf("not a user's mistake: %v", err)
	}
	if text := err.Error(); strings.Contains(text, os.TempDir()) || strings.Contains(text, "\n") || strings.Contains(text, "HELM_ERR") {
		t.Errorf("the error contains internal details: %q", text)
	}
}

// withoutWaves removes the waves that Kedge sets: of hooks, and of the objects before them.
func withoutWaves(objects []manifest.Object) []manifest.Object {
	for _, o := range objects {
		metadata, _ := o.Content["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, manifest.AnnotationWave)
		if annotations != nil && len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return objects
}

// compare reports differences from the real program. The setting error is our error if both fail; differs is
// why the real result may differ, and objects has our objects in that case.
func compare(t *testing.T, settings map[string]string, theirs, got answer) {
	t.Helper()
	if want := settings["error"]; want != "" {
		if !strings.Contains(got.failure, want) {
			t.Errorf("our error is %q, want %q", got.failure, want)
		}
		if theirs.failure == "" && settings["differs"] == "" {
			t.Errorf("the real program does not fail, but ours does: %q", got.failure)
		}
		return
	}
	if settings["differs"] != "" {
		compareDiffering(t, settings["objects"], theirs, got)
		return
	}
	if theirs.failure != "" || got.failure != "" {
		t.Fatalf("failures:\nreal: %s\nours: %s", theirs.failure, got.failure)
	}
	if len(theirs.objects) == 0 && settings["empty"] == "" {
		t.Error("nothing was rendered: the case tests nothing")
	}
	if diff := cmp.Diff(theirs.objects, got.objects); diff != "" {
		t.Errorf("objects (-real +ours):\n%s", diff)
	}
}

// compareDiffering is compare for a known difference: our objects are the listed ones, and objects that the
// real program also has are equal.
func compareDiffering(t *testing.T, want string, theirs, got answer) {
	t.Helper()
	if got.failure != "" {
		t.Fatalf("ours fails: %s", got.failure)
	}
	if keys := strings.Join(slices.Sorted(maps.Keys(got.objects)), ", "); keys != want {
		t.Errorf("our objects are %q, want %q", keys, want)
	}
	if cmp.Equal(theirs.objects, got.objects) {
		t.Error("the real program does the same: nothing differs")
	}
	for key, object := range theirs.objects {
		if diff := cmp.Diff(object, got.objects[key]); diff != "" {
			t.Errorf("%s (-real +ours):\n%s", key, diff)
		}
	}
}

// covers: G8
func TestKustomize(t *testing.T) {
	t.Parallel()
	program := tool(t, "kustomize")
	cases := loadCases(t, "kustomize")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			// The schema is a global of the library: one build at a time.
			dir := c.write(t)
			theirs := runReal(t, dir, program, "build", filepath.Join(dir, c.settings["path"]))
			compare(t, c.settings, theirs, runKustomize(t, dir, c.settings["path"]))
		})
	}
	if len(cases) < 40 {
		t.Errorf("%d cases are fewer than 40", len(cases))
	}
}

// helmRequest converts the settings of a case, also to arguments of the real program.
func (c treeCase) helmRequest(t *testing.T, dir string) (helm.Request, []string) {
	t.Helper()
	s := c.settings
	req := helm.Request{
		Path: s["path"], Namespace: s["namespace"],
		Helm:         fleet.Helm{ReleaseName: "rel", SkipCRDs: s["skipcrds"] != "", Values: c.files["INLINE"]},
		Capabilities: fleet.Capabilities{KubeVersion: s["kube"]},
	}
	if s["release"] != "" {
		req.Helm.ReleaseName = s["release"]
	}
	args := []string{"template", req.Helm.ReleaseName, filepath.Join(dir, req.Path), "--skip-tests"}
	if !req.Helm.SkipCRDs {
		args = append(args, "--include-crds")
	}
	if req.Namespace != "" {
		args = append(args, "--namespace", req.Namespace)
	}
	if s["kube"] != "" {
		args = append(args, "--kube-version", s["kube"])
	}
	for _, api := range strings.Fields(s["apis"]) {
		req.Capabilities.APIVersions = append(req.Capabilities.APIVersions, api)
		args = append(args, "--api-versions", api)
	}
	for _, file := range strings.Fields(s["values"]) {
		req.Helm.ValuesFiles = append(req.Helm.ValuesFiles, file)
		where := filepath.Join(dir, req.Path, file)
		if strings.HasPrefix(file, "/") {
			where = filepath.Join(dir, file)
		}
		args = append(args, "--values", where)
	}
	if inline, ok := c.files["INLINE"]; ok {
		where := filepath.Join(t.TempDir(), "inline.yaml")
		if err := os.WriteFile(where, []byte(inline), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values", where)
	}
	return req, args
}

// covers: G8
func TestHelm(t *testing.T) {
	t.Parallel()
	program := tool(t, "helm")
	cases := loadCases(t, "helm")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := c.write(t)
			req, args := c.helmRequest(t, dir)
			theirs := runReal(t, t.TempDir(), program, args...)
			for _, left := range strings.Fields(c.settings["left"]) {
				dropNamed(theirs.objects, left)
			}
			compare(t, c.settings, theirs, runHelm(t, dir, req))
		})
	}
	if len(cases) < 40 {
		t.Errorf("%d cases are fewer than 40", len(cases))
	}
}

// dropNamed removes an object that the real program prints and that does not belong to a deployment: a hook of
// deletion or rollback.
func dropNamed(objects map[string]map[string]any, name string) {
	for key := range objects {
		if strings.HasSuffix(key, "/"+name) || strings.HasSuffix(key, " "+name) {
			delete(objects, key)
		}
	}
}
