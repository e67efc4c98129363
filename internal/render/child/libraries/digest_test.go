package libraries_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/child/libraries"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Equal input gives the same digest on every machine and in every version: a different digest is a new revision
// of every deployment. If you change these digests, for example with a newer library, announce it to users.
//
// covers: G8
func TestDigestsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const app = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {b: \"2\", a: \"1\"}}\n" +
		"spec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: 'nginx:1.29', args: [\"<&>\", \"1e3\"]}]}\n"
	tests := map[fleet.SourceKind]struct {
		files map[string]string
		want  string
	}{
		fleet.SourceKustomize: {map[string]string{
			"app/kustomization.yaml": "resources: [web.yaml]\nnamePrefix: x-\nlabels: [{pairs: {team: shop}, includeSelectors: true}]\nimages: [{name: nginx, newTag: '1.30'}]\n" +
				"configMapGenerator: [{name: settings, literals: [a=1, b=zwei]}]\n",
			"app/web.yaml": app,
		}, "sha256:7b666dc2ccdf02ce05a316b44d648e25dbe3dbbf33c3dee227f16acd1a296aa2"},
		fleet.SourceHelm: {map[string]string{
			"app/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "app/values.yaml": "tag: '1.29'\nlist: {b: 2, a: 1}\n",
			"app/templates/web.yaml": app + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata:\n  list: {{ toJson .Values.list | quote }}\n  sum: {{ .Values | toYaml | sha256sum }}\n",
		}, "sha256:f4ede7e0295039b90233562d3317e6cde3a4001e1b054806f84464963a04c465"},
	}
	for kind, tt := range tests {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			out, err := libraries.Renderers()[kind](t.Context(), treefs.New(memtree.New(tt.files), treefs.Limits{}), child.Request{
				Path: "app", Namespace: "shop", Helm: fleet.Helm{ReleaseName: "shop"},
			})
			if err != nil {
				t.Fatal(err)
			}
			set, err := manifest.NewSet(out.Objects, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if got := set.Digest(); got != tt.want {
				t.Errorf("digest %s, want %s", got, tt.want)
			}
		})
	}
}
