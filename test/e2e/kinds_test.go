package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// renders returns the number of builds of a kind, with any result.
func (s *testServer) renders(tb testing.TB, kind string) float64 {
	tb.Helper()
	code, page, err := fetch(tb.Context(), http.DefaultClient, s.Health+"/metrics")
	if err != nil || code != 200 {
		tb.Fatalf("reading the metrics: %d, %v", code, err)
	}
	var n float64
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "kedge_render_seconds_count{") && strings.Contains(line, `kind="`+kind+`"`) {
			var value float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
				tb.Fatal(err)
			}
			n += value
		}
	}
	return n
}

// covers: G8 (Kustomize, detected), G13 (an overlay per label), G6
func TestKustomizeOverlayPerLabel(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	for agent, region := range map[string]string{"paris": "eu", "ohio": "us"} {
		enroll(t, s, cluster, apiv1.EnrollAgent{Name: agent, Labels: map[string]string{"region": region}})
	}
	files := map[string]string{
		"base/kustomization.yaml": "resources: [web.yaml]\nconfigMapGenerator: [{name: page, literals: [value=one]}]\n",
		"base/web.yaml":           fmt.Sprintf(webApp, 1),
		"notes.txt":               "1",
	}
	for region, replicas := range map[string]int{"eu": 2, "us": 3} {
		files["overlays/"+region+"/kustomization.yaml"] = fmt.Sprintf(
			"resources: [../../base]\nnamePrefix: %s-\nlabels: [{pairs: {region: %[1]s}, includeSelectors: true}]\nreplicas: [{name: web, count: %d}]\n", region, replicas)
	}
	first := repo.push(t, files)
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "overlays/{agent.labels.region}"}})
	d := s.awaitDeployment(t, "app", healthyAt(first, 2))
	if d.Source.Detected != "kustomize" {
		t.Errorf("the overlay counts as %q", d.Source.Detected)
	}
	shows(t, cluster, "2", "-n", ns, "get", "deployment", "eu-web", "-o", "jsonpath={.spec.replicas}")
	shows(t, cluster, "3", "-n", ns, "get", "deployment", "us-web", "-o", "jsonpath={.spec.replicas}")
	repo.webhooks(t, s)
	builds := s.renders(t, "kustomize")

	second := repo.push(t, map[string]string{"overlays/eu/kustomization.yaml": strings.Replace(files["overlays/eu/kustomization.yaml"], "count: 2", "count: 1", 1)})
	after := s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
		for _, target := range d.Targets {
			if target.Agent == "paris" && (target.Commit != second || target.Sync != "Synced" || target.Health != "Current") {
				return fmt.Errorf("paris is %s/%s at %s", target.Sync, target.Health, target.Commit)
			}
		}
		return nil
	})
	for _, target := range after.Targets {
		if target.Agent == "ohio" && target.Generation != 1 {
			t.Errorf("ohio was touched: %+v", target)
		}
	}
	shows(t, cluster, "1", "-n", ns, "get", "deployment", "eu-web", "-o", "jsonpath={.spec.replicas}")
	if got := s.renders(t, "kustomize") - builds; got != 1 {
		t.Errorf("a commit that changes one overlay causes %v builds", got)
	}

	// A commit without relevant changes, and a restart, build nothing: the plain deployment shows that
	// everything was evaluated.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	third := repo.push(t, map[string]string{"notes.txt": "2", "plain/cm.yaml": configMap(ns, "plain-${agent}", "x")})
	s.deploy(t, apiv1.CreateDeployment{Name: "plain", Namespace: ns, Source: apiv1.Source{
		RepoURL: repo.url, Path: "plain", Variables: map[string]string{"agent": "{agent.name}"},
	}})
	s.awaitDeployment(t, "plain", healthyAt(third, 2))
	if got := s.renders(t, "kustomize"); got != 0 {
		t.Errorf("a restart and an irrelevant commit cause %v builds", got)
	}
}

const widgetDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s.example.com}
spec:
  group: %[1]s.example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// covers: G8 (Helm: values files, inline values, release name, CRDs, hooks; for the cluster as it is)
func TestChartIsInstalledAndUpgradedByCommits(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "chart"})
	first := repo.push(t, map[string]string{
		"chart/Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml":      "tier: default\ngreeting: default\nsize: 1\n",
		"chart/crds/widget.yaml": fmt.Sprintf(widgetDefinition, ns),
		"chart/templates/page.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-page'}\ndata:\n" +
			"  tier: {{ .Values.tier }}\n  greeting: {{ .Values.greeting }}\n  size: {{ .Values.size | quote }}\n" +
			"  kube: {{ .Capabilities.KubeVersion.Version }}\n  apps: {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" | quote }}\n",
		"chart/templates/widget.yaml": fmt.Sprintf("apiVersion: %s.example.com/v1\nkind: Widget\nmetadata: {name: '{{ .Release.Name }}'}\nspec: {size: {{ .Values.size }}}\n", ns),
		"chart/templates/hook.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: '{{ .Release.Name }}-before'\n  annotations: {helm.sh/hook: 'pre-install,pre-upgrade'}\ndata: {x: z}\n",
		"chart/templates/test.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: '{{ .Release.Name }}-test'\n  annotations: {helm.sh/hook: test}\ndata: {x: z}\n",
		"env/prod.yaml":               "tier: prod\ngreeting: from-file\n",
	})
	s.deploy(t, apiv1.CreateDeployment{Name: "shop", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "chart", Helm: &apiv1.Helm{
		ReleaseName: "main", ValuesFiles: []string{"/env/prod.yaml"}, Values: map[string]any{"greeting": "on {agent.name}"},
	}}})
	d := s.awaitDeployment(t, "shop", healthyAt(first, 1))
	if d.Source.Detected != "helm" || d.Source.Helm == nil || d.Source.Helm.Values["greeting"] != "on {agent.name}" {
		t.Errorf("the source reads %+v", d.Source)
	}
	var info struct{ GitVersion string }
	if err := json.Unmarshal([]byte(cluster.Kubectl(t, "get", "--raw", "/version")), &info); err != nil {
		t.Fatal(err)
	}
	version := info.GitVersion
	page := []string{"-n", ns, "get", "configmap", "main-page", "-o", "jsonpath={.data.tier}/{.data.greeting}/{.data.size}/{.data.kube}/{.data.apps}"}
	shows(t, cluster, "prod/on chart/1/"+version+"/true", page...)
	cluster.Kubectl(t, "-n", ns, "get", "widgets."+ns+".example.com", "main")
	cluster.Kubectl(t, "-n", ns, "get", "configmap", "main-before")
	if out, err := cluster.TryKubectl(t, "-n", ns, "get", "configmap", "main-test"); err == nil {
		t.Errorf("a test of the chart is installed: %s", out)
	}
	s.awaitEvent(t, "RenderNote", "main-test")
	repo.webhooks(t, s)

	second := repo.push(t, map[string]string{"env/prod.yaml": "tier: prod\nsize: 2\n"})
	s.awaitDeployment(t, "shop", healthyAt(second, 1))
	shows(t, cluster, "prod/on chart/2/"+version+"/true", page...)
	shows(t, cluster, "2", "-n", ns, "get", "widgets."+ns+".example.com", "main", "-o", "jsonpath={.spec.size}")

	// A commit that breaks the chart is reported with its file, and has no other effect.
	repo.push(t, map[string]string{"chart/templates/page.yaml": "{{ required \"the page needs a title\" .Values.title }}"})
	broken := s.awaitDeployment(t, "shop", func(d apiv1.Deployment) error {
		if !strings.Contains(d.SourceError, "the page needs a title") || !strings.Contains(d.SourceError, "page.yaml") {
			return fmt.Errorf("the error is %q", d.SourceError)
		}
		return nil
	})
	if broken.Targets[0].Commit != second || broken.Commit != second {
		t.Errorf("a broken commit was sent: %+v", broken.Targets[0])
	}
	shows(t, cluster, "prod/on chart/2/"+version+"/true", page...)
}

// covers: A12, G9, G10 (in time and memory) and invariant 12
func TestARenderThatHurtsTakesDownOnlyItself(t *testing.T) {
	t.Parallel()
	s, repo := startServer(t, "--render-timeout", "4s", "--render-memory", "256Mi", "--render-processes", "4", "--allow-weak-sandbox"), newRepo(t)
	d, other := s.tenantClient(t, "default"), s.tenantClient(t, "other")
	light(t, d, "one")
	light(t, other, "two")
	chart := func(name, template string) map[string]string {
		return map[string]string{
			name + "/Chart.yaml":          "apiVersion: v2\nname: x\nversion: 1.0.0\n",
			name + "/templates/page.yaml": template,
		}
	}
	files := map[string]string{"good/kustomization.yaml": "resources: [cm.yaml]\n", "good/cm.yaml": configMap("default", "page", "one")}
	for _, more := range []map[string]string{
		chart("a-again", "{{ range $i := until 100000000 }}{{ range $j := until 100000 }}{{ end }}{{ end }}"),
		chart("a-endless", "{{ range $i := until 100000000 }}{{ range $j := until 100000 }}{{ end }}{{ end }}"),
		chart("a-loop", `{{ define "x" }}{{ range $i := until 100000 }}{{ sha256sum (repeat 10000 "x") }}{{ end }}{{ end }}{{ range $i := until 100000 }}{{ include "x" . | trunc 1 }}{{ end }}`),
		chart("a-more", "{{ range $i := until 100000000 }}{{ range $j := until 100000 }}{{ end }}{{ end }}"),
		chart("b-large", `{{ $x := repeat 1000000 "xxxxxxxxxx" }}{{ range $i := until 2000 }}{{ $x = print $x $x }}{{ end }}`),
	} {
		for name, content := range more {
			files[name] = content
		}
	}
	first := repo.push(t, files)
	endless := []string{"a-again", "a-endless", "a-loop", "a-more"}
	for _, name := range append(endless, "b-large", "good") {
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: name, Source: apiv1.Source{RepoURL: repo.url, Path: name}})
	}
	other.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "good", Source: apiv1.Source{RepoURL: repo.url, Path: "good"}})
	other.await(t, "good", healthyAt(first, 1))
	// A tenant has a quarter of the four processes, so its four charts take four times the limit of one.
	// Without such a share they would use all processes, and the other tenant's chart would come after all of
	// them.
	if !slices.ContainsFunc(endless, func(name string) bool { return get[apiv1.Deployment](t, d, "deployments/"+name).Sync != "Failed" }) {
		t.Error("the other tenant waited until all charts of the first one were stopped")
	}
	d.await(t, "good", healthyAt(first, 1))
	for name, limit := range map[string]string{"a-endless": "--render-", "a-loop": "--render-timeout", "b-large": "--render-memory"} {
		v := d.await(t, name, says("Failed", limit))
		if v.Commit != "" || !strings.Contains(v.Message, name) {
			t.Errorf("%s is told as %q", name, v.Message)
		}
	}
	// The server is as it was.
	repo.announce(t, d)
	second := repo.push(t, map[string]string{"good/cm.yaml": configMap("default", "page", "two")})
	d.await(t, "good", healthyAt(second, 1))
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		code, body, err := fetch(ctx, http.DefaultClient, s.URL+"/readyz")
		if err == nil && code != 200 {
			err = fmt.Errorf("not ready: %d %s", code, body)
		}
		return err
	})
}
