package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/child/libraries"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// benchRender is B15: different overlays, and one chart with different values, in a warm child, compared with
// the same calls of the same libraries in this process; then equal inputs.
func benchRender(ctx context.Context, r *rigging) error {
	n := of(r.options, 5, 100, 100)
	pool, err := child.NewPool(child.Config{Program: r.program("kedge-server")})
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, kind := range []string{kustomize, helm} {
		if err := r.renderRound(ctx, pool, kind, renderJobs(kind, n)); err != nil {
			return fmt.Errorf("of kind %s: %w", kind, err)
		}
	}
	return r.renderAlike(ctx, pool, n)
}

// renderJobs are n that differ: an overlay each, or the values of one chart.
func renderJobs(kind string, n int) []render.Job {
	files := map[string]string{}
	if kind == kustomize {
		for i := range n {
			overlayFiles(i, files)
		}
	} else {
		chartFiles(files)
	}
	tree := memtree.New(files)
	jobs := make([]render.Job, n)
	for i := range jobs {
		jobs[i] = render.Job{Owner: "bench", Tree: tree, Kind: fleet.SourceKind(kind), Path: fmt.Sprintf("overlays/%04d", i), Limits: render.DefaultLimits()}
		if kind == helm {
			jobs[i].Path = "chart"
			jobs[i].Helm = fleet.Helm{ReleaseName: "web", Values: fmt.Sprintf(`{"name":"web-%d","replicas":%d}`, i, i%9)}
		}
	}
	return jobs
}

// overlayFiles are an overlay over a base of ten objects, of the size that people have.
func overlayFiles(i int, into map[string]string) {
	into["base/kustomization.yaml"] = "resources: [app.yaml]\nlabels: [{pairs: {team: shop}, includeSelectors: true}]\n"
	text := ""
	for app := range 3 {
		text += "---\n" + appText(app, "nginx:1.29")
	}
	into["base/app.yaml"] = text
	into[fmt.Sprintf("overlays/%04d/kustomization.yaml", i)] = fmt.Sprintf(`resources: [../../base]
namePrefix: n%d-
images: [{name: nginx, newTag: "1.%d"}]
replicas: [{name: app-0000, count: %d}]
configMapGenerator: [{name: settings, literals: [index=%[1]d]}]
`, i, i, i%9)
}

func chartFiles(into map[string]string) {
	into["chart/Chart.yaml"] = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
	into["chart/values.yaml"] = "name: web\nreplicas: 1\nimage: nginx\ntag: '1.29'\n"
	into["chart/templates/_helpers.tpl"] = `{{ define "labels" }}{app: {{ .Values.name }}, release: {{ .Release.Name }}, chart: {{ .Chart.Name }}}{{ end }}`
	into["chart/templates/app.yaml"] = `{{ range $i := until 3 }}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ $.Values.name }}-{{ $i }}", labels: {{ include "labels" $ }}}
spec: {selector: {{ include "labels" $ }}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ $.Values.name }}-{{ $i }}", labels: {{ include "labels" $ }}}
spec:
  replicas: {{ $.Values.replicas }}
  selector: {matchLabels: {{ include "labels" $ }}}
  template:
    metadata: {labels: {{ include "labels" $ }}}
    spec: {containers: [{name: web, image: "{{ $.Values.image }}:{{ $.Values.tag }}"}]}
{{ end }}
`
}

// renderRuns is how often all jobs are rendered; the median counts.
const renderRuns = 5

func (r *rigging) renderRound(ctx context.Context, pool *child.Pool, kind string, jobs []render.Job) error {
	here := libraries.Renderers()[fleet.SourceKind(kind)]
	var inProcess, inChild samples
	for range renderRuns + 1 { // the first one warms both
		started := time.Now()
		for _, job := range jobs {
			if _, err := here(ctx, treefs.New(job.Tree, treefs.Limits{}), child.Request{
				Path: job.Path, Namespace: job.Namespace, Helm: job.Helm, Capabilities: job.Capabilities,
			}); err != nil {
				return err
			}
		}
		inProcess = append(inProcess, time.Since(started))
		started = time.Now()
		for _, job := range jobs {
			if _, err := pool.Build(ctx, job); err != nil {
				return err
			}
		}
		inChild = append(inChild, time.Since(started))
	}
	floor := inProcess[1:].at(50)
	return r.report(inChild[1:].percentile(fmt.Sprintf("B15.%s.%d_distinct", kind, len(jobs)), 50, floor))
}

// counting counts the builds that a cache does not answer.
type counting struct {
	next   render.Builder
	builds int
}

func (c *counting) Build(ctx context.Context, job render.Job) (*render.Built, error) {
	c.builds++
	return c.next.Build(ctx, job)
}

// renderAlike renders the same input n times, like n deployments.
func (r *rigging) renderAlike(ctx context.Context, pool *child.Pool, n int) error {
	count := &counting{next: pool}
	cache := render.NewCache(count, 0)
	job := renderJobs(kustomize, 1)[0]
	started := time.Now()
	for range n {
		if _, err := cache.Build(ctx, job); err != nil {
			return err
		}
	}
	took := time.Since(started)
	return r.reportAll(
		single(fmt.Sprintf("B15.identical.%d.builds", n), float64(count.builds), ""),
		single(fmt.Sprintf("B15.identical.%d.total", n), float64(took)/float64(time.Millisecond), "ms"),
	)
}
