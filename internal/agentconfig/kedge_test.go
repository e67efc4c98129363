package agentconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var sameFile = []cmp.Option{cmpopts.IgnoreUnexported(agentconfig.Deployment{}), cmpopts.EquateEmpty()}

// refusals are what is wrong with a file, as users read it.
func refusals(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var refused *agentconfig.Error
	if !errors.As(err, &refused) || len(refused.Findings) == 0 {
		t.Fatalf("error %v is no *agentconfig.Error with findings", err)
	}
	var out []string
	for _, f := range refused.Findings {
		out = append(out, f.String())
	}
	if refused.More > 0 {
		out = append(out, fmt.Sprintf("%d more", refused.More))
	}
	return out
}

const wholeKedgeFile = `
version: 1
deployments:
  - name: web
    labels: {team: shop}
    source:
      repoURL: https://git.example/shop.git
      path: deploy
      revision: v1
      kind: helm
      helm:
        releaseName: shop
        valuesFiles: [values-prod.yaml]
        values:
          replicas: 3
        skipCRDs: true
      variables: {REGION: eu}
    namespace: shop
    onRemove: prune
    policy:
      prune: false
      adopt: true
      allowEmpty: true
      manual: true
      force: true
      replace: true
      dryRun: true
      drift: report
      ignore: ["Deployment:/spec/replicas"]
      serviceAccount: shop/deployer
      propagation: Orphan
      pruneTimeout: 5m
      readyTimeout: 90s
      pruneLimit: {objects: 3, percent: 50}
  - name: base
    source:
      path: base
      globs: ["*.yaml"]
`

// covers: F1
func TestKedgeFileIsReadWhole(t *testing.T) {
	t.Parallel()
	got, err := agentconfig.ParseKedge([]byte(wholeKedgeFile))
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	want := agentconfig.File{Lists: true, Deployments: []agentconfig.Deployment{
		{
			Name: "web", Labels: map[string]string{"team": "shop"}, Namespace: "shop", Prune: true,
			Source: fleet.Source{
				RepoURL: "https://git.example/shop.git", Path: "deploy", Revision: "v1", Kind: fleet.SourceHelm,
				Helm:      fleet.Helm{ReleaseName: "shop", ValuesFiles: []string{"values-prod.yaml"}, Values: "replicas: 3\n", SkipCRDs: true},
				Variables: map[string]string{"REGION": "eu"},
			},
			Policy: fleet.Policy{
				Adopt: true, AllowEmpty: true, Manual: true, Force: true, Replace: true, DryRun: true, Drift: fleet.DriftReport,
				Ignore: []string{"Deployment:/spec/replicas"}, ServiceAccount: "shop/deployer", Propagation: fleet.PropagationOrphan,
				PruneTimeout: 5 * time.Minute, ReadyTimeout: 90 * time.Second, PruneLimit: fleet.PruneLimit{Objects: 3, Percent: 50},
			},
		},
		{
			Name: "base", Namespace: "default", Policy: fleet.Policy{Prune: true},
			Source: fleet.Source{Path: "base", Globs: []string{"*.yaml"}},
		},
	}}
	if diff := cmp.Diff(want, got, sameFile...); diff != "" {
		t.Errorf("file differs (-want +got):\n%s", diff)
	}
}

// covers: F1
func TestKedgeFileIsRefusedByField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"empty":         {"an empty file is the default", "", nil},
		"comments only": {"so is one that says nothing", "# later\n", nil},
		"null":          {"so is null", "deployments:\n", nil},
		"unknown key": {"a mistyped key must not be ignored", "deployments:\n- name: a\n  source: {pth: x}\n", []string{
			"line 3: deployments[0].source.pth: is not known here; known are globs, helm, kind, path, repoURL, revision, variables"}},
		"wrong type": {"", "deployments:\n- name: a\n  policy: {prune: \"true\"}\n", []string{
			"line 3: deployments[0].policy.prune: must be true or false, and is text"}},
		"number for text": {"a version that YAML takes for a number", "deployments:\n- name: a\n  source: {revision: 1.10}\n", []string{
			"line 3: deployments[0].source.revision: must be text (put it into quotes), and is a number"}},
		"bad word": {"", "deployments:\n- name: a\n  onRemove: delete\n", []string{
			`line 3: deployments[0].onRemove: "delete" is none of keep, prune`}},
		"empty glob": {"", "deployments:\n- name: a\n  source: {globs: ['']}\n", []string{"line 3: deployments[0].source.globs[0]: is empty"}},
		"no name":    {"", "deployments:\n- namespace: a\n", []string{"line 2: deployments[0].name: is missing: every deployment has a name"}},
		"bad name": {"names go into names of Kubernetes", "deployments:\n- name: A.b\n", []string{
			`line 2: deployments[0].name: "A.b" is not a valid name: use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends`}},
		"same name twice": {"", "deployments:\n- name: a\n- name: a\n", []string{`line 3: deployments[1]: the name "a" is given to deployments[0] already`}},
		"key twice":       {"YAML libraries take the last one in silence", "version: 1\nversion: 1\n", []string{"line 2: version: is given twice"}},
		"other version":   {"", "version: 2\n", []string{"line 1: version: is 2, and this server knows version 1"}},
		"two documents":   {"", "version: 1\n---\nversion: 1\n", []string{"line 2: the file holds more than one document: keep one"}},
		"not YAML":        {"", "a: [", []string{"line 1: the file is not YAML: did not find expected node content"}},
		"a list":          {"", "- a\n", []string{"line 1: must be a mapping, and is a list"}},
		"detach": {"the word of the API would mean another thing", "deployments:\n- name: a\n  policy: {pruneOnDetach: true}\n", []string{
			"line 3: deployments[0].policy.pruneOnDetach: has no meaning here: onRemove: prune, beside the policy, deletes the objects of a deployment that the file no longer lists"}},
		"all of them": {"who mends a file wants to mend it once", "deployments:\n- name: a\n  x: 1\n- name: b\n  y: 1\n  namespace: 3\n", []string{
			"line 3: deployments[0].x: is not known here; known are labels, name, namespace, onRemove, policy, source",
			"line 5: deployments[1].y: is not known here; known are labels, name, namespace, onRemove, policy, source",
			"line 6: deployments[1].namespace: must be text (put it into quotes), and is a number",
		}},
		"too big": {"", "#" + strings.Repeat("x", agentconfig.MaxSize), []string{"the file has 131073 bytes, and 131072 are allowed"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agentconfig.ParseKedge([]byte(tt.text))
			if diff := cmp.Diff(tt.want, refusals(t, err)); diff != "" {
				t.Errorf("%s: problems differ (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := agentconfig.ParseKedge([]byte("deployments:\n" + strings.Repeat("- name: UP\n", 100)))
	got := refusals(t, err)
	if len(got) != 21 || !strings.HasSuffix(got[20], " more") {
		t.Errorf("got %d lines that end with %q, want 20 and how many more", len(got), got[len(got)-1])
	}
}

func TestAnchorsAreUnderstood(t *testing.T) {
	t.Parallel()
	got, err := agentconfig.ParseKedge([]byte(`deployments:
- &one
  name: one
  namespace: shop
  policy: &p {adopt: true}
- <<: *one
  name: two
- name: three
  policy: *p
`))
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	var namespaces []string
	for _, d := range got.Deployments {
		namespaces = append(namespaces, d.Namespace)
		if !d.Policy.Adopt {
			t.Errorf("%s does not adopt, want that it does", d.Name)
		}
	}
	if diff := cmp.Diff([]string{"shop", "shop", "default"}, namespaces); diff != "" {
		t.Errorf("namespaces differ (-want +got):\n%s", diff)
	}
}

// An alias may stand for very much, and for itself.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	bomb := "deployments: &d0 [" + strings.Repeat("{name: x, policy: {ignore: &i ["+strings.Repeat("a,", 1000)+"]}},", 1) +
		strings.Repeat("{name: y, policy: {ignore: *i}},", 400) + "]\n"
	for name, text := range map[string]string{"wide": bomb, "a circle": "&a\n<<: *a\n", "a circle of lists": "deployments: &a [*a]\n"} {
		if _, err := agentconfig.ParseKedge([]byte(text)); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestFindingsSpeakOfTheFile(t *testing.T) {
	t.Parallel()
	file, err := agentconfig.ParseKedge([]byte("deployments:\n- name: a\n  source:\n    path: ../x\n"))
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	for field, want := range map[string]string{
		"source.path":    "line 4: deployments[0].source.path: wrong",
		"source.repoURL": "line 3: deployments[0].source.repoURL: wrong",
		"policy.ignore":  "line 2: deployments[0].policy.ignore: wrong",
	} {
		if got := file.Deployments[0].Finding(field, "wrong").String(); got != want {
			t.Errorf("finding of %s: got %q, want %q", field, got, want)
		}
	}
}
