package render_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/render"
)

const encrypted = "ENC[AES256_GCM,data:abc=,iv:x=,tag:y=,type:str]"

func job(name, annotations string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\n"
}

// Objects that other tools treat specially cause a note, and harmful ones are refused.
func TestWhatPeopleBringAlongIsNoted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		files map[string]string
		globs []string
		notes []string // each a part of its note
		kept  int      // objects
	}{
		"Flux and Argo CD": {
			files: map[string]string{"a.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: apps, namespace: flux-system}\n",
				"b.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: all}\n",
				"c.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\n",
				"d.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web}\n"},
			notes: []string{"ApplicationSet.argoproj.io all, HelmRelease.helm.toolkit.fluxcd.io web, Kustomization.kustomize.toolkit.fluxcd.io flux-system/apps"}, kept: 4,
		},
		"hooks": {
			files: map[string]string{"a.yaml": job("before", "argocd.argoproj.io/hook: PreSync"), "b.yaml": job("failed", "argocd.argoproj.io/hook: SyncFail"),
				"c.yaml": job("skipped", "argocd.argoproj.io/hook: Skip"), "d.yaml": job("after", "argocd.argoproj.io/hook: PostSync"), "e.yaml": job("during", "argocd.argoproj.io/hook: Sync")},
			notes: []string{"of PostSync are applied as a wave after everything else, each time that they change, and are not deleted afterwards: Job.batch after",
				"of PreSync are applied as a wave before", "of Skip are left out: Job.batch skipped", "of Sync are applied like any other", "of SyncFail are left out: Job.batch failed"}, kept: 3,
		},
		"a kustomization that the globs exclude": {
			files: map[string]string{"a.yaml": configMap("a"), "base/kustomization.yaml": "resources: [b.yaml]", "base/b.yaml": configMap("b"), "other/kustomization.yaml": "{}", "other/x.txt": ""},
			globs: []string{"*.yaml", "base/b.yaml"}, notes: []string{"their other files are read as plain manifests. Deploy such a folder with a separate deployment to build it, or exclude it with globs: base"}, kept: 2,
		},
		"a file that SOPS has encrypted in a Secret": {
			files: map[string]string{"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {file: " + base64.StdEncoding.EncodeToString([]byte("a: "+encrypted)) + "}\n"},
			notes: []string{"encrypted with SOPS, and it is applied unchanged: Secret s"}, kept: 1,
		},
		"a kind that another controller decrypts": {
			files: map[string]string{"a.yaml": "apiVersion: isindir.github.com/v1alpha3\nkind: SopsSecret\nmetadata: {name: s}\nsops: {mac: x}\n"}, kept: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), memtree.New(tc.files), render.Request{Globs: tc.globs}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Set.Len() != tc.kept {
				t.Errorf("%d objects, want %d", result.Set.Len(), tc.kept)
			}
			if len(result.Notes) != len(tc.notes) {
				t.Fatalf("notes are %q, want %q", result.Notes, tc.notes)
			}
			for i, want := range tc.notes {
				if !strings.Contains(result.Notes[i], want) {
					t.Errorf("note %q does not say %q", result.Notes[i], want)
				}
			}
		})
	}
}

func TestWhatCannotBeDeployedIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a Secret with the metadata of SOPS": {map[string]string{"s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\nsops: {mac: x, version: 3.9.0}\n"},
			[]string{"s.yaml", "Secret shop/s", "SOPS"}},
		"a Secret with an encrypted value": {map[string]string{"s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: '" + encrypted + "'}\n"},
			[]string{"s.yaml", "Secret s", "SOPS"}},
		"a ConfigMap with the metadata of SOPS": {map[string]string{"s.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\nsops: {mac: x}\n"}, []string{"ConfigMap s"}},
		"a kustomization without type":          {map[string]string{"a.yaml": configMap("a"), "base/kustomization.yaml": "resources: [b.yaml]\n"}, []string{"base/kustomization.yaml", `deploy the folder "base"`, "globs"}},
		"a kustomization with type":             {map[string]string{"a.yaml": configMap("a"), "base/kustomization.yml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"}, []string{"base/kustomization.yml", "globs"}},
		"a kustomization with a name": {map[string]string{"a.yaml": configMap("a"), "base/k.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nmetadata: {name: x}\n"},
			[]string{"base/k.yaml", "is a Kustomize file"}},
		"a generated name": {map[string]string{"a.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: migrate-}\n"}, []string{"a.yaml", "set metadata.name instead", "another name"}},
	} {
		_, err := render.Render(t.Context(), memtree.New(tc.files), render.Request{}, nil)
		if !render.IsUserError(err) {
			t.Errorf("%s: got %v", reason, err)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", reason, err, part)
			}
		}
	}
}

// Phases of Argo CD come before its waves.
func TestHooksOfArgoAreWaves(t *testing.T) {
	t.Parallel()
	result, err := render.Render(t.Context(), memtree.New(map[string]string{
		"ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", "a.yaml": job("early", "argocd.argoproj.io/sync-wave: '-3'"), "b.yaml": job("late", "argocd.argoproj.io/sync-wave: '4'"),
		"c.yaml": job("pre-second", "argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/sync-wave: '7'"), "d.yaml": job("pre-first", "argocd.argoproj.io/hook: 'PreSync,PostSync'"),
		"e.yaml": job("post", "argocd.argoproj.io/hook: PostSync, argocd.argoproj.io/sync-wave: '-9'"), "f.yaml": job("own", "argocd.argoproj.io/hook: PreSync, kedge.dev/wave: '2'"),
	}), render.Request{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range result.Set.Objects() {
		annotations, _ := o.Content["metadata"].(map[string]any)["annotations"].(map[string]any)
		wave := annotations["kedge.dev/wave"]
		if wave == nil {
			wave = annotations["argocd.argoproj.io/sync-wave"]
		}
		got = append(got, fmt.Sprint(o.Ref.Name, " ", wave))
	}
	slices.Sort(got)
	want := []string{"early -3", "late 4", "own 2", "post 5", "pre-first -5", "pre-second -4", "shop -6"}
	if !slices.Equal(got, want) {
		t.Errorf("waves are %q, want %q", got, want)
	}
}
