package render_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/rendertest"
)

// kinds is a tree with a folder of each kind.
func kinds() map[string]string {
	return map[string]string{
		"plain/a.yaml":                    configMap("a"),
		"overlay/kustomization.yaml":      "resources: [../base]\nnamePrefix: x-\n",
		"base/kustomization.yml":          "resources: [cm.yaml]\n",
		"base/cm.yaml":                    configMap("base"),
		"base/unused.txt":                 "1",
		"chart/Chart.yaml":                "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/values.yaml":               "greeting: hello\n",
		"chart/templates/cm.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-cm', namespace: '{{ .Release.Namespace }}'}\ndata: {greeting: '{{ .Values.greeting }}', kube: '{{ .Capabilities.KubeVersion }}', var: '${name}'}\n",
		"env/eu.yaml":                     "greeting: bonjour\n",
		"random/Chart.yaml":               "apiVersion: v2\nname: random\nversion: 1.0.0\n",
		"random/templates/cm.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r}\ndata: {x: '{{ randAlphaNum 12 }}'}\n",
		"both/Chart.yaml":                 "apiVersion: v2\nname: both\nversion: 1.0.0\n",
		"both/kustomization.yaml":         "resources: []\n",
		"folder/Chart.yaml/x.yaml":        configMap("in-a-folder"),
		"folder/kustomization.yaml/y.txt": "",
	}
}

func with(changes map[string]string) *memtree.Tree {
	files := kinds()
	maps.Copy(files, changes)
	maps.DeleteFunc(files, func(_, content string) bool { return content == "DELETED" })
	return memtree.New(files)
}

// covers: G8 (detected or stated)
func TestDetect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason, folder string
		globs          []string
		want           fleet.SourceKind
		problem        string
	}{
		{reason: "manifests", folder: "plain", want: fleet.SourcePlain},
		{reason: "a kustomization", folder: "/overlay/", want: fleet.SourceKustomize},
		{reason: "by its other name", folder: "base", want: fleet.SourceKustomize},
		{reason: "a chart", folder: "chart", want: fleet.SourceHelm},
		{reason: "globs are of plain manifests", folder: "chart", globs: []string{"*.yaml"}, want: fleet.SourcePlain},
		{reason: "folders with these names do not count", folder: "folder", want: fleet.SourcePlain},
		{reason: "no such folder", folder: "none", want: fleet.SourcePlain},
		{reason: "both", folder: "both", problem: "source.kind"},
	} {
		got, err := render.Detect(t.Context(), with(nil), tt.folder, tt.globs)
		switch {
		case tt.problem != "" && (err == nil || !render.IsUserError(err) || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%s: got %q, %v", tt.reason, got, err)
		case tt.problem == "" && (err != nil || got != tt.want):
			t.Errorf("%s: got %q, %v", tt.reason, got, err)
		}
	}
}

// covers: G8, G11, G13 (variables are replaced whatever the objects came from)
func TestRenderBuilt(t *testing.T) {
	t.Parallel()
	chart := render.Request{
		Path: "chart", Namespace: "shop", Release: "web", Variables: map[string]string{"name": "ada"},
		Helm:         fleet.Helm{ValuesFiles: []string{"/env/eu.yaml"}},
		Capabilities: fleet.Capabilities{KubeVersion: "v1.30.2"},
	}
	result, err := render.Render(t.Context(), with(nil), chart, &rendertest.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	o := result.Set.Objects()[0]
	data, _ := o.Content["data"].(map[string]any)
	if result.Kind != fleet.SourceHelm || o.Ref.String() != "ConfigMap shop/web-cm" || data["greeting"] != "bonjour" || data["kube"] != "v1.30.2" || data["var"] != "ada" {
		t.Errorf("%s: %s %v", result.Kind, o.Ref, data)
	}
	for reason, tt := range map[string]struct {
		req     render.Request
		builder render.Builder
		problem string
	}{
		"no builder":                  {render.Request{Path: "overlay"}, nil, "overlay: the kind is kustomize"},
		"helm settings, and no chart": {render.Request{Path: "plain", Helm: fleet.Helm{SkipCRDs: true}}, &rendertest.Builder{}, "plain: source.helm is set"},
		"wrong kind set":              {render.Request{Path: "plain", Kind: fleet.SourceHelm, Release: "x"}, &rendertest.Builder{}, "Chart.yaml"},
		"too many objects":            {render.Request{Path: "overlay", Limits: render.Limits{Objects: -1}}, &rendertest.Builder{}, "more than the -1"},
		"an undefined variable":       {render.Request{Path: "chart", Release: "web", Variables: map[string]string{"other": "x"}}, &rendertest.Builder{}, `"name"`},
	} {
		if _, err := render.Render(t.Context(), with(nil), tt.req, tt.builder); err == nil || !render.IsUserError(err) || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

// covers: G6 (what was read decides, and it is seen without building or reading)
func TestKeyOfWhatIsBuilt(t *testing.T) {
	t.Parallel()
	overlay := render.Request{Path: "overlay", Namespace: "n"}
	chart := render.Request{Path: "chart", Namespace: "n", Release: "web", Capabilities: fleet.Capabilities{KubeVersion: "v1.30.2"}}
	for _, tt := range []struct {
		reason  string
		req     render.Request
		changes map[string]string
		edit    func(*render.Request)
		same    bool
	}{
		{reason: "nothing", req: overlay, same: true},
		{reason: "another folder", req: overlay, changes: map[string]string{"plain/a.yaml": configMap("b")}, same: true},
		{reason: "a file that is not read", req: overlay, changes: map[string]string{"base/unused.txt": "2"}, same: true},
		{reason: "the base", req: overlay, changes: map[string]string{"base/cm.yaml": configMap("other")}},
		{reason: "it becomes a chart too", req: overlay, changes: map[string]string{"overlay/Chart.yaml": "apiVersion: v2"}},
		{reason: "it ceases to be Kustomize", req: overlay, changes: map[string]string{"overlay/kustomization.yaml": "DELETED", "overlay/a.yaml": configMap("a")}},
		{reason: "the namespace", req: overlay, edit: func(r *render.Request) { r.Namespace = "m" }},
		{reason: "capabilities, and no chart", req: overlay, edit: func(r *render.Request) { r.Capabilities.KubeVersion = "v1.31.0" }, same: true},
		{reason: "the release of no chart", req: overlay, edit: func(r *render.Request) { r.Release = "other" }, same: true},
		{reason: "another owner", req: overlay, edit: func(r *render.Request) { r.Owner = "other" }, same: true},
		{reason: "capabilities", req: chart, edit: func(r *render.Request) { r.Capabilities.KubeVersion = "v1.31.0" }},
		{reason: "values", req: chart, edit: func(r *render.Request) { r.Helm.Values = `{"a":1}` }},
		{reason: "the release", req: chart, edit: func(r *render.Request) { r.Release = "other" }},
		{reason: "a template", req: chart, changes: map[string]string{"chart/templates/new.yaml": configMap("new")}},
	} {
		result, err := render.Render(t.Context(), with(nil), tt.req, &rendertest.Builder{})
		if err != nil {
			t.Fatal(err)
		}
		tree, req := with(tt.changes), tt.req
		if tt.edit != nil {
			tt.edit(&req)
		}
		key, err := render.Key(t.Context(), tree, req, result.Reads)
		if err != nil && !render.IsUserError(err) || (key == result.Key) != tt.same {
			t.Errorf("%s: the key was %s and is %s, %v", tt.reason, result.Key, key, err)
		}
		if tree.Reads() > 0 {
			t.Errorf("%s: files were read for a key", tt.reason)
		}
	}
	if key, err := render.Key(t.Context(), with(nil), overlay, nil); key != "" || err != nil {
		t.Errorf("without reads the key is %q, %v", key, err)
	}
}

func TestAVolatileChartHasNoCapabilitiesInItsKey(t *testing.T) {
	t.Parallel()
	req := render.Request{Path: "random", Release: "web", Capabilities: fleet.Capabilities{KubeVersion: "v1.30.2"}}
	result, err := render.Render(t.Context(), with(nil), req, &rendertest.Builder{})
	if err != nil || !result.Volatile {
		t.Fatalf("got %+v, %v", result, err)
	}
	req.Capabilities = fleet.Capabilities{}
	if key, err := render.Key(t.Context(), with(nil), req, result.Reads); err != nil || key != result.Key {
		t.Errorf("the key is %s, %v, and %s of the result", key, err, result.Key)
	}
}

var errLost = errors.New("lost")
