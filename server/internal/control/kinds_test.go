package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/rendertest"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// newBuildingRoom starts a Service that can render every kind, with a builder that counts.
func newBuildingReplica(t *testing.T) (*replica, *rendertest.Builder) {
	t.Helper()
	builder := &rendertest.Builder{}
	return newReplicas(t, newSQLite(t), 1, control.Config{Builder: builder})[0], builder
}

// chartFiles is a chart whose one object shows the version of Kubernetes that it is rendered for.
func chartFiles(folder, value string) map[string]string {
	return map[string]string{
		folder + "/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		folder + "/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata:\n" +
			"  value: " + value + "\n  kube: '{{ .Capabilities.KubeVersion }}'\n  region: '{{ .Values.region }}'\n",
		folder + "/values.yaml": "region: none\n",
	}
}

func (r *replica) deploySource(t *testing.T, name string, source fleet.Source) {
	t.Helper()
	source.RepoURL = r.url
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: name, Source: source})
	ok(t, err)
}

func (r *replica) capable(t *testing.T, agent fleet.Agent, version string) {
	t.Helper()
	ok(t, r.AgentCapable(t.Context(), agent, fleet.Capabilities{KubeVersion: version, APIVersions: []string{"apps/v1", "v1"}}))
}

// everyTargetAt waits until every target is to have a commit.
func everyTargetAt(commit string) func(control.DeploymentView) error {
	return func(d control.DeploymentView) error {
		if d.SourceError != "" {
			return errors.New(d.SourceError)
		}
		for _, t := range d.Targets {
			if t.Desired.Commit != commit {
				return fmt.Errorf("%s is to have %q, not %q", t.AgentName, t.Desired.Commit, commit)
			}
		}
		return nil
	}
}

// covers: G6, G8 (one commit in a repository of many apps costs one build)
func TestOnlyWhatReadsACommitIsBuilt(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	r.enroll(t, "paris")
	const apps = 40
	files := map[string]string{"shared/kustomization.yaml": "resources: [cm.yaml]\n", "shared/cm.yaml": configMap("shared", "1")}
	for i := range apps {
		app := fmt.Sprintf("apps/%02d", i)
		files[app+"/kustomization.yaml"] = "resources: [own.yaml]\nnamePrefix: a-\n"
		files[app+"/own.yaml"] = configMap(fmt.Sprintf("own-%d", i), "1")
	}
	files["apps/00/kustomization.yaml"] = "resources: [own.yaml, ../../shared]\n"
	first := r.push(t, files)
	for i := range apps {
		r.deploy(t, fmt.Sprintf("app-%02d", i), fmt.Sprintf("apps/%02d", i))
	}
	for i := range apps {
		r.await(t, fmt.Sprintf("app-%02d", i), atCommit(first))
	}
	if got := builder.Count(); got != apps {
		t.Fatalf("%d builds of %d apps", got, apps)
	}
	for _, step := range []struct {
		reason, file, app string
		builds            int
	}{
		{"one app", "apps/07/own.yaml", "app-07", 1},
		{"what one app shares", "shared/cm.yaml", "app-00", 1},
	} {
		before := builder.Count()
		commit := r.push(t, map[string]string{step.file: configMap("other", step.reason), "README.md": step.reason})
		r.await(t, step.app, atCommit(commit))
		if got := builder.Count() - before; got != step.builds {
			t.Errorf("a commit that touches %s costs %d builds", step.reason, got)
		}
	}
}

// covers: G6, G8 (a restart renders nothing again, not even what is volatile)
func TestARestartBuildsNothing(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	builder := &rendertest.Builder{}
	r := newReplicas(t, db, 1, control.Config{Builder: builder})[0]
	r.capable(t, r.enroll(t, "paris"), "v1.30.0")
	files := chartFiles("chart", "'{{ randAlphaNum 20 }}'")
	files["overlay/kustomization.yaml"] = "resources: [cm.yaml]\n"
	files["overlay/cm.yaml"] = configMap("o", "1")
	first := r.push(t, files)
	r.deploy(t, "chart", "chart")
	r.deploy(t, "overlay", "overlay")
	before := []control.DeploymentView{r.await(t, "chart", everyTargetAt(first)), r.await(t, "overlay", everyTargetAt(first))}
	if !before[0].Rendered.Volatile || before[0].Detected != fleet.SourceHelm || before[1].Detected != fleet.SourceKustomize {
		t.Errorf("found %q, volatile %t, and %q", before[0].Detected, before[0].Rendered.Volatile, before[1].Detected)
	}
	r.kill()
	builds := builder.Count()

	again := &replica{git: r.git, repo: r.repo, url: r.url, store: db.open(t)}
	again.start(t, t.TempDir(), control.Config{
		Builder: builder, Key: []byte(strings.Repeat("k", 32)), Version: "test", PollInterval: time.Hour,
	})
	// The plain one shows that everything was evaluated.
	later := again.push(t, map[string]string{"plain/cm.yaml": configMap("p", "1"), "README.md": "new"})
	again.deploy(t, "plain", "plain")
	again.await(t, "plain", everyTargetAt(later))
	for _, was := range before {
		now, err := again.Deployment(t.Context(), admin, "default", was.Name)
		ok(t, err)
		if diff := cmp.Diff(was.Targets[0].Desired, now.Targets[0].Desired); diff != "" {
			t.Errorf("%s was disturbed (-before +after):\n%s", was.Name, diff)
		}
	}
	if got := builder.Count() - builds; got != 0 {
		t.Errorf("%d builds after a restart", got)
	}
}

// covers: G8 (as the target cluster reports), T4
func TestChartsAreRenderedForTheirClusters(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	paris, lyon, boston := r.enroll(t, "paris"), r.enroll(t, "lyon"), r.enroll(t, "boston")
	r.capable(t, paris, "v1.30.0")
	r.capable(t, lyon, "v1.30.0")
	first := r.push(t, chartFiles("chart", "'1'"))
	r.deploy(t, "web", "chart")
	targets := byAgent(r.await(t, "web", everyTargetAt(first)))
	digests := map[string]string{}
	for name, target := range targets {
		digests[name] = target.Desired.Digest
	}
	if digests["paris"] != digests["lyon"] || digests["paris"] == digests["boston"] {
		t.Errorf("digests: %v", digests)
	}
	// An agent without known capabilities gets Helm's defaults, and another render when they are known. One
	// build is of the folder before it was known to be a chart.
	if got := builder.Count(); got > 3 {
		t.Errorf("%d builds of two variants", got)
	}
	r.capable(t, boston, "v1.30.0")
	now := byAgent(r.await(t, "web", func(d control.DeploymentView) error {
		if got := byAgent(d)["boston"].Desired.Digest; got != digests["paris"] {
			return fmt.Errorf("boston has %s", got)
		}
		return nil
	}))
	if now["paris"].Desired.Version != targets["paris"].Desired.Version || now["boston"].Desired.Generation != 2 {
		t.Errorf("paris is at %+v, boston at %+v", now["paris"].Desired.Version, now["boston"].Desired.Version)
	}
	// The same again changes nothing.
	builds := builder.Count()
	r.capable(t, boston, "v1.30.0")
	second := r.push(t, chartFiles("chart", "'2'"))
	after := byAgent(r.await(t, "web", everyTargetAt(second)))
	if after["paris"].Desired.Digest != after["boston"].Desired.Digest || builder.Count() != builds+1 {
		t.Errorf("%d builds of one variant", builder.Count()-builds)
	}
}

// covers: G8 (a volatile chart is not rendered again because its cluster was upgraded)
func TestAVolatileChartOutlivesAnUpgradeOfItsCluster(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	paris, lyon := r.enroll(t, "paris"), r.enroll(t, "lyon")
	r.capable(t, paris, "v1.30.0")
	r.capable(t, lyon, "v1.30.0")
	first := r.push(t, chartFiles("chart", "'{{ randAlphaNum 20 }}'"))
	r.deploySource(t, "web", fleet.Source{Path: "chart", Kind: fleet.SourceHelm})
	before := byAgent(r.await(t, "web", everyTargetAt(first)))
	builds := builder.Count()
	r.capable(t, paris, "v1.31.0")
	// Another deployment of the same repository shows that all of it was evaluated.
	other := r.push(t, map[string]string{"plain/cm.yaml": configMap("p", "1")})
	r.deploy(t, "plain", "plain")
	r.await(t, "plain", everyTargetAt(other))
	d, err := r.Deployment(t.Context(), admin, "default", "web")
	ok(t, err)
	if now := byAgent(d); now["paris"].Desired.Version != before["paris"].Desired.Version || builder.Count() != builds {
		t.Errorf("paris went from %+v to %+v, after %d builds", before["paris"].Desired, now["paris"].Desired, builder.Count()-builds)
	}
	// What it reads has changed: each is rendered for what its cluster is now.
	second := r.push(t, map[string]string{"chart/values.yaml": "region: changed\n"})
	now := byAgent(r.await(t, "web", everyTargetAt(second)))
	if now["paris"].Desired.Digest == now["lyon"].Desired.Digest {
		t.Error("clusters of different versions share a render")
	}
	if jobs := builder.Jobs(); jobs[len(jobs)-1].Capabilities.KubeVersion == jobs[len(jobs)-2].Capabilities.KubeVersion {
		t.Errorf("the last two builds are for %s", jobs[len(jobs)-1].Capabilities.KubeVersion)
	}
}

// covers: G8, invariant 5 (what a folder holds may change under a deployment that does not say)
func TestAFolderBecomesAChartAndCeasesToBeOne(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	r.capable(t, r.enroll(t, "paris"), "v1.30.0")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("app", "1")})
	r.deploy(t, "app", "app")
	plain := r.await(t, "app", everyTargetAt(first))
	files := chartFiles("app", "'1'")
	files["app/cm.yaml"] = "{{ not a template of the chart"
	second := r.push(t, files)
	chart := r.await(t, "app", everyTargetAt(second))
	if chart.Detected != fleet.SourceHelm || chart.Rendered.Digest != "" || chart.Targets[0].Desired.Generation != 2 {
		t.Errorf("it is %q, with %+v", chart.Detected, chart.Targets[0].Desired)
	}
	// A broken chart has no other effect.
	r.push(t, map[string]string{"app/templates/cm.yaml": "{{ fail \"on purpose\" }}"})
	broken := r.await(t, "app", func(d control.DeploymentView) error {
		if !strings.Contains(d.SourceError, "on purpose") {
			return fmt.Errorf("the error is %q", d.SourceError)
		}
		return nil
	})
	if diff := cmp.Diff(chart.Targets[0].Desired, broken.Targets[0].Desired); diff != "" {
		t.Errorf("a broken commit has changed (-before +after):\n%s", diff)
	}
	third := r.push(t, map[string]string{
		"app/Chart.yaml": gitserver.Deleted, "app/values.yaml": gitserver.Deleted, "app/templates/cm.yaml": gitserver.Deleted,
		"app/cm.yaml": configMap("app", "1"),
	})
	again := r.await(t, "app", everyTargetAt(third))
	if again.Detected != fleet.SourcePlain || again.Rendered.Digest != plain.Rendered.Digest || again.Targets[0].Desired.Digest != plain.Rendered.Digest {
		t.Errorf("it is %q, with %+v", again.Detected, again.Targets[0].Desired)
	}
}

// covers: G13 (values may use names and labels of agents)
func TestValuesSpeakOfAgents(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	r.enrollIn(t, "paris", "eu")
	r.enrollIn(t, "boston", "us")
	r.enrollIn(t, "mars", "")
	files := chartFiles("chart", "'1'")
	files["chart/eu.yaml"], files["chart/us.yaml"] = "region: from-eu\n", "region: from-us\n"
	first := r.push(t, files)
	for name, helm := range map[string]fleet.Helm{
		"file":    {ValuesFiles: []string{"{agent.labels.region}.yaml"}},
		"values":  {Values: "region: 'in-{agent.labels.region}'"},
		"release": {ReleaseName: "web-{agent.labels.region}"},
	} {
		r.deploySource(t, name, fleet.Source{Path: "chart", Helm: helm})
		targets := byAgent(r.await(t, name, func(d control.DeploymentView) error {
			for _, agent := range []string{"paris", "boston"} {
				if got := byAgent(d)[agent]; got.Desired.Commit != first {
					return fmt.Errorf("%s: %+v; %s", agent, got.Desired, d.Message)
				}
			}
			return nil
		}))
		if targets["paris"].Desired.Digest == targets["boston"].Desired.Digest {
			t.Errorf("%s: both regions have one result", name)
		}
		if mars := targets["mars"]; mars.View.Sync != fleet.SyncFailed || !strings.Contains(mars.View.Message, `"region"`) {
			t.Errorf("%s: an agent without the label reads %s: %q", name, mars.View.Sync, mars.View.Message)
		}
	}
}

// covers: G8 (what is broken is not rendered again for a commit that touches nothing it reads)
func TestABrokenSourceIsRenderedAgainWhenWhatItReadsHasChanged(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	r.enroll(t, "paris")
	r.push(t, map[string]string{"app/kustomization.yaml": "resources: [missing.yaml]\n", "plain/cm.yaml": configMap("p", "1")})
	r.deploy(t, "app", "app")
	r.deploy(t, "plain", "plain")
	broken := r.await(t, "app", func(d control.DeploymentView) error {
		if !strings.Contains(d.SourceError, "missing.yaml") {
			return fmt.Errorf("the error is %q", d.SourceError)
		}
		return nil
	})
	builds := builder.Count()
	r.await(t, "plain", everyTargetAt(r.push(t, map[string]string{"plain/cm.yaml": configMap("p", "2"), "app/README.md": "unread"})))
	if got := builder.Count() - builds; got != 0 {
		t.Errorf("%d builds of what is broken as before: %s", got, broken.SourceError)
	}
	r.await(t, "app", everyTargetAt(r.push(t, map[string]string{"app/missing.yaml": configMap("a", "1")})))
}

// covers: G9, G10, A12 and invariant 12 (a render that takes for ever delays no other of its repository)
func TestARenderThatTakesForEverDelaysNoOther(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	stuck := make(chan struct{})
	builder.Before = func(ctx context.Context, job render.Job) error {
		if job.Path != "a-endless" {
			return nil
		}
		select {
		case <-stuck:
			return &render.Error{Path: job.Path, Problem: "rendering took longer than is allowed"}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.enroll(t, "paris")
	files := map[string]string{
		"a-endless/kustomization.yaml": "resources: [cm.yaml]\n", "a-endless/cm.yaml": configMap("a", "1"),
		"b/kustomization.yaml": "resources: [cm.yaml]\n", "b/cm.yaml": configMap("b", "1"), "b/gone.yaml": configMap("gone", "1"),
	}
	first := r.push(t, files)
	r.deploy(t, "a-endless", "a-endless")
	r.deploy(t, "b", "b")
	r.await(t, "b", everyTargetAt(first)) // nothing was given out of it, so that it takes nothing away
	files["b/cm.yaml"] = configMap("b", "2")
	second := r.push(t, files)
	r.await(t, "b", everyTargetAt(second))
	r.deploy(t, "c", "b")
	r.await(t, "c", everyTargetAt(second))
	_, err := r.CreateRun(t.Context(), admin, "default", "b", control.CreateRun{Revision: first})
	ok(t, err)
	r.await(t, "b", everyTargetAt(first))
	close(stuck)
	d := r.await(t, "a-endless", func(d control.DeploymentView) error {
		if !strings.Contains(d.SourceError, "longer than is allowed") {
			return fmt.Errorf("the error is %q", d.SourceError)
		}
		return nil
	})
	if d.Targets[0].Desired.Digest != "" {
		t.Error("something of it was given out")
	}
}

// lateTaker lets builds of the folder "taker" wait for late, once hold is set.
func lateTaker(builder *rendertest.Builder) (late chan struct{}, hold *atomic.Bool) {
	late, hold = make(chan struct{}), &atomic.Bool{}
	builder.Before = func(ctx context.Context, job render.Job) error {
		if job.Path != "taker" || !hold.Load() {
			return nil
		}
		select {
		case <-late:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return late, hold
}

// covers: A14 (an object that moves to a deployment whose render is late is not taken away before)
func TestWhatMovesToALateDeploymentIsNotTakenAwayBefore(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	late, hold := lateTaker(builder)
	r.enroll(t, "paris")
	names := []string{"giver", "other", "taker"}
	for _, name := range names {
		r.deploy(t, name, name)
	}
	files := map[string]string{
		"giver/a.yaml": configMap("a", "1"), "giver/moves.yaml": configMap("moves", "1"), "other/b.yaml": configMap("b", "1"),
		"taker/kustomization.yaml": "resources: [c.yaml]\n", "taker/c.yaml": configMap("c", "1"),
	}
	first := r.push(t, files)
	for _, name := range names {
		r.await(t, name, everyTargetAt(first))
	}
	hold.Store(true)
	files["giver/moves.yaml"] = "# moved to taker\n"
	files["other/b.yaml"] = configMap("b", "2")
	files["taker/kustomization.yaml"], files["taker/moves.yaml"] = "resources: [c.yaml, moves.yaml]\n", configMap("moves", "1")
	second := r.push(t, files)
	r.await(t, "other", everyTargetAt(second)) // which does not wait for the late one
	if d := r.await(t, "giver", func(control.DeploymentView) error { return nil }); d.Targets[0].Desired.Commit != first {
		t.Error("the object was taken away before it was given")
	}
	close(late)
	r.await(t, "taker", everyTargetAt(second))
	r.await(t, "giver", everyTargetAt(second))
}

// covers: A14 (nor when the move comes while its deployment is still with an earlier commit)
func TestWhatMovesToADeploymentThatIsBehindIsNotTakenAwayBefore(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	late, hold := lateTaker(builder)
	r.enroll(t, "paris")
	names := []string{"giver", "other", "taker"}
	files := map[string]string{
		"giver/a.yaml": configMap("a", "1"), "giver/moves.yaml": configMap("moves", "1"), "other/b.yaml": configMap("b", "1"),
		"taker/kustomization.yaml": "resources: [c.yaml]\n", "taker/c.yaml": configMap("c", "1"),
	}
	first := r.push(t, files)
	for _, name := range names {
		r.deploy(t, name, name)
	}
	for _, name := range names {
		r.await(t, name, everyTargetAt(first))
	}
	hold.Store(true)
	files["taker/c.yaml"], files["other/b.yaml"] = configMap("c", "2"), configMap("b", "2")
	r.await(t, "other", everyTargetAt(r.push(t, files)))
	files["giver/moves.yaml"], files["other/b.yaml"] = "# moved to taker\n", configMap("b", "3")
	files["taker/kustomization.yaml"], files["taker/moves.yaml"] = "resources: [c.yaml, moves.yaml]\n", configMap("moves", "1")
	third := r.push(t, files)
	r.await(t, "other", everyTargetAt(third))                                    // written with the giver, had nobody known of the taker
	for name, revision := range map[string]string{"giver": "", "other": first} { // nor by somebody who does not want to wait
		_, err := r.CreateRun(t.Context(), admin, "default", name, control.CreateRun{Revision: revision})
		ok(t, err)
	}
	r.await(t, "other", everyTargetAt(first))
	if d := r.await(t, "giver", func(control.DeploymentView) error { return nil }); d.Targets[0].Desired.Commit != first {
		t.Error("the object was taken away before it was given")
	}
	close(late)
	r.await(t, "taker", everyTargetAt(third))
	r.await(t, "giver", everyTargetAt(third))
}

// covers: G8 (hooks that are left out are reported, once per revision)
func TestNotesBecomeEvents(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	r.enroll(t, "paris")
	files := chartFiles("chart", "'{{ now }}'")
	first := r.push(t, files)
	r.deploy(t, "web", "chart")
	r.await(t, "web", everyTargetAt(first))
	events, err := r.Events(t.Context(), admin, "default", store.EventFilter{Deployment: "web"})
	ok(t, err)
	found := 0
	for _, e := range events {
		if e.Reason == "RenderNote" && strings.Contains(e.Message, "time or randomness") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d notes among %+v", found, events)
	}
}

func TestSourcesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	for reason, tt := range map[string]struct {
		source fleet.Source
		field  string
	}{
		"an unknown kind":              {fleet.Source{Kind: "jsonnet"}, "source.kind"},
		"values of plain manifests":    {fleet.Source{Kind: fleet.SourcePlain, Helm: fleet.Helm{Values: "a: 1"}}, "source.helm"},
		"values of Kustomize":          {fleet.Source{Kind: fleet.SourceKustomize, Helm: fleet.Helm{SkipCRDs: true}}, "source.helm"},
		"globs of a chart":             {fleet.Source{Kind: fleet.SourceHelm, Globs: []string{"*"}}, "source.globs"},
		"globs of Kustomize":           {fleet.Source{Kind: fleet.SourceKustomize, Globs: []string{"*"}}, "source.globs"},
		"globs and values":             {fleet.Source{Globs: []string{"*"}, Helm: fleet.Helm{Values: "a: 1"}}, "source.globs"},
		"values that are a list":       {fleet.Source{Helm: fleet.Helm{Values: "[1]"}}, "source.helm.values"},
		"values that are no YAML":      {fleet.Source{Helm: fleet.Helm{Values: "a: [1"}}, "source.helm.values"},
		"values twice":                 {fleet.Source{Helm: fleet.Helm{Values: "a: 1\na: 2"}}, "source.helm.values"},
		"values with aliases":          {fleet.Source{Helm: fleet.Helm{Values: "a: &x 1\nb: *x"}}, "source.helm.values"},
		"values that are too large":    {fleet.Source{Helm: fleet.Helm{Values: "a: " + strings.Repeat("x", 64<<10)}}, "source.helm.values"},
		"values that become too large": {fleet.Source{Helm: fleet.Helm{Values: "a: '" + strings.Repeat("<", 40<<10) + "'"}}, "source.helm.values"},
		"a reference that is none":     {fleet.Source{Helm: fleet.Helm{Values: "a: '{agent.cluster}'"}}, "source.helm.values"},
		"a file that leaves":           {fleet.Source{Helm: fleet.Helm{ValuesFiles: []string{"/../x"}}}, "source.helm.valuesFiles"},
		"a file of elsewhere":          {fleet.Source{Helm: fleet.Helm{ValuesFiles: []string{"https://x/y"}}}, "source.helm.valuesFiles"},
		"a key without a value":        {fleet.Source{Helm: fleet.Helm{Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "a"}}}}, "source.helm.set"},
		"a set of no type":             {fleet.Source{Helm: fleet.Helm{Set: []fleet.HelmSet{{Expression: "a=1"}}}}, "source.helm.set"},
		"a set of long lists":          {fleet.Source{Helm: fleet.Helm{Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: strings.Repeat("a[65536][65536].b=1,", 3)}}}}, "source.helm.set"},
		"a set that is too large":      {fleet.Source{Helm: fleet.Helm{Values: "a: 1", Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "a=" + strings.Repeat("x", 64<<10)}}}}, "source.helm.set"},
		"a set of plain manifests":     {fleet.Source{Kind: fleet.SourcePlain, Helm: fleet.Helm{Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "a=1"}}}}, "source.helm"},
		"no file":                      {fleet.Source{Helm: fleet.Helm{ValuesFiles: []string{""}}}, "source.helm.valuesFiles"},
		"a long release name":          {fleet.Source{Helm: fleet.Helm{ReleaseName: strings.Repeat("x", 54)}}, "source.helm.releaseName"},
		"a release name in capitals":   {fleet.Source{Helm: fleet.Helm{ReleaseName: "Web"}}, "source.helm.releaseName"},
	} {
		tt.source.RepoURL = r.url
		_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{Name: "x", Source: tt.source})
		var invalid *fleet.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field {
			t.Errorf("%s: got %v, want a mistake in %s", reason, err, tt.field)
		}
	}
}

// The same values in another form are the same.
func TestValuesHaveOneForm(t *testing.T) {
	t.Parallel()
	r, _ := newBuildingReplica(t)
	r.deploySource(t, "web", fleet.Source{Path: "chart", Helm: fleet.Helm{Values: "b: {c: [1, x]}\na: true\n"}})
	d, err := r.Deployment(t.Context(), admin, "default", "web")
	ok(t, err)
	if d.Source.Helm.Values != `{"a":true,"b":{"c":[1,"x"]}}` {
		t.Errorf("kept as %s", d.Source.Helm.Values)
	}
	source := d.Source
	source.Helm.Values = `{"b": {"c": [1, "x"]}, "a": true}`
	same, err := r.UpdateDeployment(t.Context(), admin, "default", "web", control.UpdateDeployment{Source: &source}, control.Match{})
	ok(t, err)
	if same.SpecRevision != d.SpecRevision {
		t.Errorf("the same values were an edit: %d became %d", d.SpecRevision, same.SpecRevision)
	}
}
