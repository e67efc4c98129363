package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/cli"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// imageServer answers as a server would for three deployments: one that can be pushed to, one whose branch is
// protected, and one that is as asked for already.
func imageServer(t *testing.T) string {
	t.Helper()
	place := apiv1.ImagePlace{
		File: "app/web.yaml", Line: 14, Object: "Deployment/web", Field: "spec.template.spec.containers[web].image",
		Image: "nginx:1.29", New: "nginx:1.30", Old: "nginx:1.29", Text: "nginx:1.30", Note: "anchor &i: every *i changes too",
	}
	const tenant = "/api/v1/tenants/default/deployments/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+tenant+"web/images", func(w http.ResponseWriter, _ *http.Request) {
		write(w, 200, apiv1.Images{Commit: "c0ffee0123456789", Items: []apiv1.ImagePlace{
			{File: "app/web.yaml", Line: 14, Object: "Deployment/web", Field: "spec.template.spec.containers[web].image", Image: "nginx:1.29"},
			{File: "(inline values of the deployment)", Field: "image.tag", Image: "web:\x1b[2J1", Fixed: "set by the inline values of the deployment, not in Git"},
		}})
	})
	mux.HandleFunc("POST "+tenant+"{name}/images", func(w http.ResponseWriter, r *http.Request) {
		var req apiv1.SetImages
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		u := apiv1.ImageUpdate{Changed: true, Places: []apiv1.ImagePlace{place}, Base: "c0ffee0123456789", Commit: "decade0123456789", Branch: "main"}
		switch {
		case r.PathValue("name") == "same":
			u = apiv1.ImageUpdate{Places: []apiv1.ImagePlace{{Image: "nginx:1.30", New: "nginx:1.30", Old: "nginx:1.30", Text: "nginx:1.30"}}, Base: u.Base, Branch: "main"}
		case req.DryRun:
			u.Changed, u.Commit = false, ""
		case r.PathValue("name") == "guarded":
			u.Branch, u.Protected, u.URL = "kedge/image/guarded-1", "protected branch", "https://github.com/x/y/compare/main...kedge/image/guarded-1"
		case req.Branch != "":
			u.Branch = req.Branch
		}
		write(w, 200, u)
	})
	mux.HandleFunc("GET "+tenant+"{name}/diff", func(w http.ResponseWriter, r *http.Request) {
		d := apiv1.Diff{From: apiv1.DiffSide{Name: "desired", Commit: "c0ffee0123456789"}, To: apiv1.DiffSide{Name: r.URL.Query().Get("to"), Revision: 3, Commit: "decade0123456789"}}
		v := apiv1.VariantDiff{Count: 1, Agents: []string{"prod"}, Unchanged: 4}
		switch r.PathValue("name") {
		case "web":
			v.Changed, v.Added = 1, 1
			v.Objects = []apiv1.ObjectDiff{
				{Object: "Secret shop/s", Change: "changed", More: 3, Fields: []apiv1.FieldDiff{{Path: "data.password", Change: "changed", Old: "(hidden)", New: "(hidden)"}}},
				{Object: "ConfigMap shop/a", Change: "added", Fields: []apiv1.FieldDiff{{Path: "data.x", Change: "added", New: `"1"`}}},
			}
			v.Variant, v.Count, v.Notes = "v1", 12, []string{"a note"}
		case "broken":
			v.Problem = "HEAD cannot be rendered: app/a.yaml: not valid YAML"
		}
		d.Variants = []apiv1.VariantDiff{v}
		write(w, 200, d)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// covers: I1 (the command line)
func TestOutputOfImagesAndDiffsIsAsRecorded(t *testing.T) {
	t.Parallel()
	url := imageServer(t)
	env := map[string]string{"KEDGE_SERVER": url, "KEDGE_TOKEN": "t", "XDG_CONFIG_HOME": t.TempDir()}
	for name, args := range map[string]string{
		"list":           "image list web",
		"list-json":      "image list web -o json",
		"set":            "image set web nginx=:1.30",
		"set-branch":     "image set web nginx=:1.30 --branch bump",
		"set-dry":        "image set web nginx=:1.30 --dry-run",
		"set-json":       "image set web nginx=:1.30 -o json",
		"set-protected":  "image set guarded nginx=:1.30",
		"set-same":       "image set same nginx=:1.30",
		"set-no-ref":     "image set web nginx",
		"set-no-image":   "image set web",
		"set-format":     "image set web nginx=:1.30 -o csv",
		"diff":           "diff web",
		"diff-exit-code": "diff web --to 3 --exit-code",
		"diff-same":      "diff same --exit-code",
		"diff-broken":    "diff broken",
		"diff-json":      "diff web -o json",
		"diff-both":      "diff a b --from 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Golden(t, "image/"+name+".golden", "$ kedge "+args+"\n"+run(t, env, "", strings.Fields(args)...).String())
		})
	}
}

func diffIn(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	program, err := renderProgram()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code = cli.Run(t.Context(), append([]string{"diff"}, args...), cli.Options{Out: &stdout, Err: &stderr, RenderProgram: program})
	return stdout.String(), stderr.String(), code
}

func TestDiffOfFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"a/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', r: '${R}'}\n",
		"b/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '2', r: '${R}'}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: planted}\n",
	})
	out, errs, code := diffIn(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"), "--var", "R=eu", "--namespace", "shop", "--exit-code")
	if code != 1 || errs != "" || strings.Contains(out, "planted") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	for _, part := range []string{"~ ConfigMap shop/a\n  - data.x: \"1\"\n  + data.x: \"2\"\n", "+ Secret shop/s", "stringData.p: (hidden)", "1 object added, 1 changed, 0 removed, 0 unchanged."} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	if out, errs, code := diffIn(t, filepath.Join(dir, "a"), filepath.Join(dir, "a"), "--exit-code"); code != 0 || !strings.Contains(out, "Nothing differs") {
		t.Errorf("the same twice: exit %d, %s\n%s", code, errs, out)
	}
	if _, errs, code := diffIn(t, filepath.Join(dir, "a"), filepath.Join(dir, "none")); code != 1 || !strings.Contains(errs, "none") {
		t.Errorf("a folder that is not there: exit %d, %s", code, errs)
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiffOfChartsTakesTheFlagsOfRender(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{}
	for folder, size := range map[string]string{"a": "1", "b": "2"} {
		files[folder+"/Chart.yaml"] = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
		files[folder+"/prod.yaml"] = "size: " + size + "\n"
		files[folder+"/templates/cm.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata: {size: '{{ .Values.size }}'}\n"
	}
	writeFiles(t, dir, files)
	out, errs, code := diffIn(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"), "--helm-release", "shop", "--values-file", "prod.yaml")
	if want := "~ ConfigMap default/shop\n  - data.size: \"1\"\n  + data.size: \"2\"\n"; code != 0 || errs != "" || !strings.Contains(out, want) {
		t.Errorf("exit %d, %s, want %q in\n%s", code, errs, want, out)
	}
}
