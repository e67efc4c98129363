package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// rendered returns the output of kedge render for a folder that is not a Git repository.
func rendered(t *testing.T, files map[string]string, path string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		where := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(where), 0o755), os.WriteFile(where, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), binary(t, "kedge"), append([]string{"render", dir, "--path", path, "--digest"}, args...)...).Output()
	if err != nil {
		t.Fatalf("rendering %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

// covers: G8, O4 (render: what it prints is what the server gives to agents)
func TestTheServerRendersWhatTheCommandDoes(t *testing.T) {
	t.Parallel()
	s, repo := startServer(t), newRepo(t)
	d := s.tenantClient(t, "default")
	light(t, d, "one")
	files := map[string]string{
		"plain/a.yaml":               "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {region: \"${region}\", whole: 1.0}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
		"plain/more/c.json":          `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "other"}}]}`,
		"base/kustomization.yaml":    "resources: [cm.yaml]\nconfigMapGenerator: [{name: page, literals: [value=one]}]\n",
		"base/cm.yaml":               configMap("default", "d", "1"),
		"overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: prod-\nlabels: [{pairs: {a: b}}]\n",
		"web/Chart.yaml":             "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"web/values.yaml":            "tier: default\nsize: 1\n",
		"web/templates/cm.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}', namespace: '{{ .Release.Namespace }}'}\ndata: {tier: '{{ .Values.tier }}', size: '{{ .Values.size }}'}\n",
		"web/templates/hook.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-before', annotations: {helm.sh/hook: pre-install}}\n",
		"env/prod.yaml":              "tier: prod\n",
	}
	commit := repo.push(t, files)
	tests := []struct {
		kind   string
		source apiv1.Source
		args   []string
	}{
		{"plain", apiv1.Source{Path: "plain", Variables: map[string]string{"region": "eu"}}, []string{"--var", "region=eu"}},
		{"kustomize", apiv1.Source{Path: "overlay"}, nil},
		{
			"helm", apiv1.Source{Path: "web", Helm: &apiv1.Helm{ReleaseName: "main", ValuesFiles: []string{"/env/prod.yaml"}, Values: map[string]any{"size": 2}}},
			[]string{"--helm-release", "main", "--values-file", "/env/prod.yaml", "--set", "size=2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			tt.source.RepoURL = repo.url
			d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: tt.kind, Namespace: "shop", Source: tt.source})
			v := d.await(t, tt.kind, healthyAt(commit, 1))
			if v.Source.Detected != tt.kind {
				t.Fatalf("the kind is %q", v.Source.Detected)
			}
			// A chart has a digest for each kind of cluster that it is rendered for, which its revision names.
			kept := get[apiv1.List[apiv1.Revision]](t, d, "deployments/"+tt.kind+"/revisions").Items
			want := rendered(t, files, tt.source.Path, append(tt.args, "--namespace", "shop")...)
			if len(kept) != 1 || !slices.Equal(kept[0].Digests, []string{want}) || (v.Digest != "" && v.Digest != want) {
				t.Errorf("the server has %q and %+v, the command %s", v.Digest, kept, want)
			}
		})
	}
}
