//go:build linux

package child_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
)

const serverPkg = "cmd/kedge-server"

// aliasBomb is a few hundred bytes that multiply to gigabytes.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	return b.String()
}

func chart(template string) map[string]string {
	return map[string]string{
		"Chart.yaml":              "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"values.yaml":             "color: red\n",
		"templates/template.yaml": template,
	}
}

const configMapTemplate = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-cm', namespace: '{{ .Release.Namespace }}'}\ndata: {color: '{{ .Values.color }}', kube: '{{ .Capabilities.KubeVersion.Version }}'}\n"

// The released program renders in its sandbox.
func TestTheRealProgramRenders(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Program: program(t, serverPkg)})
	status, err := pool.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sandbox: %+v", status)
	if len(status.Open) > 0 {
		t.Errorf("a child reaches %v", status.Open)
	}
	helm := render.Job{
		Owner: "a", Kind: fleet.SourceHelm, Path: ".", Namespace: "shop", Helm: fleet.Helm{ReleaseName: "rel", Values: "color: blue"},
		Capabilities: fleet.Capabilities{KubeVersion: "v1.36.3"}, Tree: memtree.New(chart(configMapTemplate)),
	}
	built, err := pool.Build(t.Context(), helm)
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Objects) != 1 || built.Objects[0].Ref.String() != "ConfigMap shop/rel-cm" {
		t.Fatalf("the chart gives %+v", built.Objects)
	}
	if data := fmt.Sprint(built.Objects[0].Content["data"]); data != "map[color:blue kube:v1.36.3]" {
		t.Errorf("its data is %s", data)
	}
	if !slices.ContainsFunc(built.Reads, func(r string) bool {
		return strings.Contains(r, "Chart.yaml") || strings.HasSuffix(r, ".") || strings.Contains(r, "/")
	}) {
		t.Errorf("it has read %q", built.Reads)
	}
	kustomize := render.Job{Owner: "a", Kind: fleet.SourceKustomize, Path: "over", Tree: memtree.New(map[string]string{
		"base/kustomization.yaml": "resources: [cm.yaml]\n",
		"base/cm.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"over/kustomization.yaml": "resources: [../base]\nnamePrefix: p-\nnamespace: shop\n",
	})}
	built, err = pool.Build(t.Context(), kustomize)
	if err != nil {
		t.Fatal(err)
	}
	if len(built.Objects) != 1 || built.Objects[0].Ref.String() != "ConfigMap shop/p-x" {
		t.Fatalf("the overlay gives %+v", built.Objects)
	}
	if n := len(children(t, pool)); n != 1 {
		t.Errorf("two builds of one owner took %d processes", n)
	}
}

// Kustomize keeps the schema of a build in a global variable: the next build must not see it.
func TestABuildThatSetsASchemaEndsItsChild(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Program: program(t, serverPkg)})
	build := func(files map[string]string) {
		t.Helper()
		files["cm.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
		if _, err := pool.Build(t.Context(), render.Job{Owner: "a", Kind: fleet.SourceKustomize, Path: ".", Tree: memtree.New(files)}); err != nil {
			t.Fatal(err)
		}
	}
	build(map[string]string{"kustomization.yaml": "resources: [cm.yaml]\n"})
	if n := len(children(t, pool)); n != 1 {
		t.Errorf("%d processes wait after an ordinary build, want 1", n)
	}
	build(map[string]string{
		"kustomization.yaml": "resources: [cm.yaml]\nopenapi: {path: schema.json}\n",
		"schema.json":        `{"definitions":{"v1.X":{"type":"object","x-kubernetes-group-version-kind":[{"group":"x.io","kind":"X","version":"v1"}]}}}`,
	})
	if n := len(children(t, pool)); n != 0 {
		t.Errorf("%d processes wait after a build with a schema of its own, want none", n)
	}
}

// covers: G9, G10
func TestHostileTreesTakeDownNothing(t *testing.T) {
	t.Parallel()
	limits := child.Limits{Time: 5 * time.Second, Memory: 512 << 20, Output: 4 << 20}
	pool := newPool(t, child.Config{Program: program(t, serverPkg), Limits: limits, Processes: 16})
	tests := []struct {
		reason string
		kind   fleet.SourceKind
		files  map[string]string
		want   []string // one of them in the message; none when it is enough that it is a mistake
	}{
		{"aliases that multiply", fleet.SourceKustomize, map[string]string{"kustomization.yaml": "resources: [bomb.yaml]\n", "bomb.yaml": aliasBomb()}, nil},
		{"a loop of a template", fleet.SourceHelm, chart("{{ range until 2000000000 }}{{ end }}"), []string{"--render-memory", "--render-timeout"}},
		{"a large range", fleet.SourceHelm, chart("a: {{ len (until 150000000) }}"), []string{"--render-memory", "--render-timeout"}},
		{"a template that includes itself", fleet.SourceHelm, chart(`{{ define "x" }}{{ include "x" . }}{{ end }}{{ include "x" . }}`), nil},
		{"templates that double", fleet.SourceHelm, chart(doubling(40)), []string{"--render-memory", "--render-timeout"}},
		{"much output", fleet.SourceHelm, chart("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: '{{ repeat 12000000 \"x\" }}'}\n"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			built, err := pool.Build(t.Context(), render.Job{
				Owner: tt.reason, Kind: tt.kind, Path: ".", Tree: memtree.New(tt.files), Helm: fleet.Helm{ReleaseName: "r"},
			})
			if err == nil || !render.IsUserError(err) {
				t.Fatalf("got %v, %v, want a user error", built, err)
			}
			if tt.want != nil && !slices.ContainsFunc(tt.want, func(part string) bool { return strings.Contains(err.Error(), part) }) {
				t.Errorf("%q contains none of %q", err, tt.want)
			}
		})
	}
}

// doubling is a text that doubles its length with each of n templates.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{{ define "t0" }}xxxxxxxxxxxxxxxx{{ end }}`)
	for i := range n {
		fmt.Fprintf(&b, `{{ define "t%d" }}{{ include "t%d" . }}{{ include "t%d" . }}{{ end }}`, i+1, i, i)
	}
	fmt.Fprintf(&b, `a: {{ include "t%d" . }}`, n)
	return b.String()
}
