package agentconfig_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var sameFile = []cmp.Option{cmpopts.IgnoreUnexported(agentconfig.Deployment{}), cmpopts.EquateEmpty()}

// refusals are invalid files with their messages.
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
kindFilter:
  include: [Deployment.apps, ConfigMap]
  exclude: ["*"]
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
      previewOnly: true
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
	want := agentconfig.File{Lists: true, Kinds: &fleet.KindFilter{Include: []string{"ConfigMap", "Deployment.apps"}, Exclude: []string{"*"}}, Deployments: []agentconfig.Deployment{
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
		"comments only": {"so is one without content", "# later\n", nil},
		"null":          {"so is null", "deployments:\n", nil},
		"unknown key": {"a mistyped key must not be ignored", "deployments:\n- name: a\n  source: {pth: x}\n", []string{
			"line 3: deployments[0].source.pth: is not a known key: use one of globs, helm, kind, path, repoURL, revision, variables"}},
		"wrong type": {"", "deployments:\n- name: a\n  policy: {prune: \"true\"}\n", []string{
			"line 3: deployments[0].policy.prune: must be true or false, but is text"}},
		"number for text": {"a version that YAML parses as a number", "deployments:\n- name: a\n  source: {revision: 1.10}\n", []string{
			"line 3: deployments[0].source.revision: must be text (put it into quotes), but is a number"}},
		"bad word": {"", "deployments:\n- name: a\n  onRemove: delete\n", []string{
			`line 3: deployments[0].onRemove: "delete" is not one of keep, prune`}},
		"empty glob": {"", "deployments:\n- name: a\n  source: {globs: ['']}\n", []string{"line 3: deployments[0].source.globs[0]: is empty"}},
		"no name":    {"", "deployments:\n- namespace: a\n", []string{"line 2: deployments[0].name: is missing: every deployment has a name"}},
		"null name":  {"an empty value counts as missing", "deployments:\n- name:\n", []string{"line 2: deployments[0].name: is missing: every deployment has a name"}},
		"alias without a name": {"the value need not be a deployment", "deployments:\n- name: a\n  labels: &l {namespace: b}\n- *l\n", []string{
			"line 3: deployments[1].name: is missing: every deployment has a name"}},
		"bad name": {"names go into names of Kubernetes", "deployments:\n- name: A.b\n", []string{
			`line 2: deployments[0].name: "A.b" is not a valid name: use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends`}},
		"same name twice": {"", "deployments:\n- name: a\n- name: a\n", []string{`line 3: deployments[1]: the name "a" is already used by deployments[0]`}},
		"key twice":       {"YAML libraries silently use the last one", "version: 1\nversion: 1\n", []string{"line 2: version: is given twice"}},
		"other version":   {"", "version: 2\n", []string{"line 1: version: is 2, but this server supports version 1"}},
		"two documents":   {"", "version: 1\n---\nversion: 1\n", []string{"line 2: the file contains more than one document: keep one"}},
		"not YAML":        {"", "a: [", []string{"line 1: the file is not YAML: did not find expected node content"}},
		"a list":          {"", "- a\n", []string{"line 1: must be a mapping, but is a list"}},
		"detach": {"the API field would have another meaning", "deployments:\n- name: a\n  policy: {pruneOnDetach: true}\n", []string{
			"line 3: deployments[0].policy.pruneOnDetach: has no meaning here: onRemove: prune, beside the policy, deletes the objects of a deployment that the file no longer lists"}},
		"all of them": {"one attempt shows all errors", "deployments:\n- name: a\n  x: 1\n- name: b\n  y: 1\n  namespace: 3\n", []string{
			"line 3: deployments[0].x: is not a known key: use one of labels, name, namespace, onRemove, policy, source",
			"line 5: deployments[1].y: is not a known key: use one of labels, name, namespace, onRemove, policy, source",
			"line 6: deployments[1].namespace: must be text (put it into quotes), but is a number",
		}},
		"plural": {"kinds are written as in a manifest", "kindFilter:\n  include: [configmaps]\n  exclude: [x, 3]\n", []string{
			`line 2: kindFilter.include: "configmaps" is not a kind: write "ConfigMap", "Deployment.apps", "Ingress.*", "*.example.com" or "*"`,
			"line 3: kindFilter.exclude[1]: must be text (put it into quotes), but is a number"}},
		"unknown list": {"", "kindFilter: {only: [Secret]}\n", []string{"line 1: kindFilter.only: is not a known key: use one of exclude, include"}},
		"too big":      {"", "#" + strings.Repeat("x", agentconfig.MaxSize), []string{"the file has 131073 bytes, and 131072 are allowed"}},
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

// An alias may expand to very many nodes, or to itself. The test is not parallel because it measures
// allocations, and those of other tests would count.
func TestAliasesAreBounded(t *testing.T) {
	const tooMuch = "has more than 100000 values"
	big := strings.Repeat("v", 60<<10)
	tests := map[string]struct {
		reason string
		text   string
		want   string
	}{
		"wide":              {"a list that others repeat", "deployments: &d0 [{name: x, policy: {ignore: &i [" + strings.Repeat("a,", 1000) + "]}}," + strings.Repeat("{name: y, policy: {ignore: *i}},", 400) + "]\n", tooMuch},
		"a circle":          {"", "&a\n<<: *a\n", "at most 8 levels deep"},
		"a circle of lists": {"", "deployments: &a [*a]\n", "must be a mapping"},
		"keys given twice":  {"each merge would report each key again", mergeBomb(strings.Repeat("x,", 30_000), 20_000), tooMuch},
		"keys of no type":   {"so would keys that are not text", mergeBomb(strings.Repeat("1,", 30_000), 20_000), tooMuch},
		"merged keys":       {"each merge visits each key again", mergeBomb(distinctKeys(10_000), 20_000), tooMuch},
		"merges of merges":  {"a hundred to the power of three", "a: &a {}\n" + deepMerges(3), tooMuch},
		"long keys":         {"the path of a field is as long as its keys", "x: &l {? " + big + " : v}\ndeployments: [" + strings.Repeat("{labels: *l},", 450) + "]\n", tooMuch},
		"values":            {"values are written out for each deployment", "x: &v {" + strings.Repeat("a: 1,", 10_000) + "}\n" + sameValues(450), tooMuch},
		"long values":       {"and values are long", "x: &v {a: " + big + "}\n" + sameValues(450), tooMuch},
		"many mistakes":     {"findings that are not listed are not kept", "x: &o " + big + "\ndeployments: [" + strings.Repeat("{onRemove: *o, source: {kind: *o}, policy: {drift: *o, propagation: *o, pruneTimeout: *o, readyTimeout: *o}},", 450) + "]\n", "is not a known key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if len(tt.text) > agentconfig.MaxSize {
				t.Fatalf("the file has %d bytes, which are refused without being read", len(tt.text))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := errWithin(t, 30*time.Second, func() error { _, err := agentconfig.ParseKedge([]byte(tt.text)); return err })
			runtime.ReadMemStats(&after)
			if got := strings.Join(refusals(t, err), "; "); !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %.300q, want %q", tt.reason, got, tt.want)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 128 {
				t.Errorf("%s: reading it took %d MiB, want at most 128", tt.reason, used)
			}
		})
	}
}

// mergeBomb merges one mapping into another very often.
func mergeBomb(keys string, times int) string {
	return "a: &a {" + keys + "}\n<<: [" + strings.Repeat("*a,", times) + "]\n"
}

func distinctKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%x,", i+0xa000)
	}
	return b.String()
}

// deepMerges merges every mapping a hundred times into the next.
func deepMerges(levels int) string {
	var b strings.Builder
	for i := range levels {
		fmt.Fprintf(&b, "k%d: &%c {<<: [%s]}\n", i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 100))
	}
	fmt.Fprintf(&b, "<<: *%c\n", 'a'+levels)
	return b.String()
}

func sameValues(n int) string {
	return "deployments: [" + strings.Repeat("{source: {helm: {values: *v}}},", n) + "]\n"
}

// errWithin fails the test if f does not return in time.
func errWithin(t *testing.T, limit time.Duration, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatalf("parsing has not ended after %v", limit)
		return nil
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
