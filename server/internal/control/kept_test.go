package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/rendertest"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// manualChart syncs a chart to paris (v1.30.0) and lyon (v1.31.0), which get different renders.
func manualChart(t *testing.T) (r *replica, lyon fleet.Agent, was map[string]control.TargetView) {
	t.Helper()
	r, _ = newBuildingReplica(t)
	paris := r.enroll(t, "paris")
	r.capable(t, paris, "v1.30.0")
	lyon = r.enroll(t, "lyon")
	r.capable(t, lyon, "v1.31.0")
	first := r.push(t, chartFiles("app", "'1'"))
	_, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}, Policy: &fleet.Policy{Prune: true, Manual: true},
	})
	ok(t, err)
	r.await(t, "app", atCommit(first))
	run := r.sync(t, "")
	was = byAgent(r.await(t, "app", everyTargetAt(first)))
	if was["paris"].Desired.Digest == was["lyon"].Desired.Digest {
		t.Fatal("both have one render")
	}
	for _, agent := range []fleet.Agent{paris, lyon} {
		r.report(t, agent, r.target(t, agent), fleet.SyncSynced)
	}
	r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	return r, lyon, was
}

// wantKept evaluates the whole repository, through another deployment in it, and then checks the desired
// states.
func (r *replica) wantKept(t *testing.T, was map[string]control.TargetView, agents ...string) {
	t.Helper()
	r.deploy(t, "probe", "probe")
	r.await(t, "probe", everyTargetAt(r.push(t, map[string]string{"probe/cm.yaml": configMap("probe", "1")})))
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	for _, name := range agents {
		if now := byAgent(d)[name].Desired; now.Digest != was[name].Desired.Digest {
			t.Errorf("%s went from %+v to %+v", name, was[name].Desired, now)
		}
	}
}

// covers: A16 (a pinned chart leaves a cluster alone that was upgraded: others' renders hold other objects)
func TestChartsThatArePinnedKeepTheRenderOfTheirOwnCluster(t *testing.T) {
	t.Parallel()
	r, lyon, was := manualChart(t)
	for _, version := range []string{"v1.28.0", "v1.29.0", "v1.32.0", "v1.33.0"} {
		r.capable(t, lyon, version)
	}
	r.wantKept(t, was, "paris", "lyon")
}

// A folder that ceases to be a chart has one variant for all, and does not change what is pinned.
func TestChartsThatArePinnedOutliveTheirFolder(t *testing.T) {
	t.Parallel()
	r, _, was := manualChart(t)
	r.push(t, map[string]string{
		"app/Chart.yaml": gitserver.Deleted, "app/values.yaml": gitserver.Deleted, "app/templates/cm.yaml": gitserver.Deleted,
		"app/cm.yaml": configMap("app", "1"),
	})
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Detected != fleet.SourcePlain {
			return fmt.Errorf("it is %q", d.Detected)
		}
		return nil
	})
	r.wantKept(t, was, "paris", "lyon")
}

// covers: A12 (a variant that a run could not render is not given another cluster's)
func TestChartsThatFailForOneClusterLeaveItAlone(t *testing.T) {
	t.Parallel()
	r, lyon, was := manualChart(t)
	files := chartFiles("app", "'2'")
	files["app/templates/check.yaml"] = `{{ if eq .Capabilities.KubeVersion.Version "v1.31.0" }}{{ fail "on purpose" }}{{ end }}`
	second := r.push(t, files)
	run := r.sync(t, "")
	d := r.await(t, "app", func(d control.DeploymentView) error {
		if byAgent(d)["paris"].Desired.Commit != second {
			return errors.New("not there yet")
		}
		return nil
	})
	if now := byAgent(d)["lyon"].Desired; now.Version != was["lyon"].Desired.Version {
		t.Errorf("lyon was given %+v", now)
	}
	_, err := r.TerminateRun(t.Context(), admin, "default", run.ID, control.Match{})
	ok(t, err)
	r.wantKept(t, was, "lyon")
	r.capable(t, lyon, "v1.29.0") // it is none of those that were kept any more
	if now, err := r.Deployment(t.Context(), admin, "default", "app"); err != nil || byAgent(now)["lyon"].Desired.Digest != was["lyon"].Desired.Digest {
		t.Errorf("upgraded, lyon was given %+v, %v", byAgent(now)["lyon"].Desired, err)
	}
}

// covers: G8 (a folder that is away for one commit costs no password)
func TestAVolatileChartOutlivesACommitWithoutIt(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]map[string]string{
		"the folder is missing": {"app/Chart.yaml": gitserver.Deleted, "app/values.yaml": gitserver.Deleted, "app/templates/cm.yaml": gitserver.Deleted},
		"only its file is":      {"app/Chart.yaml": gitserver.Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newBuildingReplica(t)
			r.capable(t, r.enroll(t, "paris"), "v1.30.0")
			files := chartFiles("app", "'{{ randAlphaNum 20 }}'")
			first := r.push(t, files)
			r.deploy(t, "app", "app")
			was := r.await(t, "app", everyTargetAt(first))
			r.push(t, broken)
			r.await(t, "app", func(d control.DeploymentView) error {
				if d.SourceError == "" {
					return errors.New("it is not broken yet")
				}
				return nil
			})
			r.push(t, files)
			now := r.await(t, "app", func(d control.DeploymentView) error { return sourceErrorOf(d) })
			if now.Detected != fleet.SourceHelm || now.Targets[0].Desired.Version != was.Targets[0].Desired.Version {
				t.Errorf("it is %q, and went from %+v to %+v", now.Detected, was.Targets[0].Desired, now.Targets[0].Desired)
			}
		})
	}
}

func sourceErrorOf(d control.DeploymentView) error {
	if d.SourceError != "" {
		return errors.New(d.SourceError)
	}
	return nil
}

// covers: G8 (an agent that connects for the first time does not get other random values)
func TestAVolatileChartOutlivesTheFirstWordOfItsAgent(t *testing.T) {
	t.Parallel()
	r, builder := newBuildingReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, chartFiles("app", "'{{ randAlphaNum 20 }}'"))
	r.deploy(t, "app", "app")
	was := byAgent(r.await(t, "app", everyTargetAt(first)))
	r.capable(t, paris, "v1.30.0")
	r.wantKept(t, was, "paris")
	second := r.push(t, map[string]string{"app/values.yaml": "region: changed\n"})
	r.await(t, "app", everyTargetAt(second))
	if jobs := builder.Jobs(); jobs[len(jobs)-1].Capabilities.KubeVersion != "v1.30.0" {
		t.Errorf("what has changed was rendered for %q", jobs[len(jobs)-1].Capabilities.KubeVersion)
	}
}

// Invariant 4: the permission of a file to delete is from before the restore of a backup, as far as the server
// knows: while an agent is ahead of the server, nothing is deleted.
func TestDeclaredAndAheadOfTheServerIsLetGoAndNotDeleted(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.push(t, map[string]string{kedgeFile("paris"): declares("web!"), "web/cm.yaml": configMap("web", "1"), "other/cm.yaml": configMap("o", "1")})
	r.configure(t, "paris")
	d := r.await(t, "paris.web", func(d control.DeploymentView) error {
		if len(d.Targets) == 0 || d.Targets[0].Desired.Digest == "" {
			return errors.New("it has no bundle yet")
		}
		return nil
	})
	r.push(t, map[string]string{"web/cm.yaml": "{{ broken"}) // so that it stays ahead
	r.await(t, "paris.web", func(d control.DeploymentView) error {
		if d.SourceError == "" {
			return errors.New("it is not broken yet")
		}
		return nil
	})
	ok(t, r.AgentAhead(t.Context(), paris, d.Targets[0].ID, fleet.Version{Epoch: d.Targets[0].Desired.Epoch, Generation: 41}))
	r.push(t, map[string]string{kedgeFile("paris"): declares("other")})
	r.awaitLetGo(t, "paris.web")
}

// covers: G10 (a render that was too slow once is tried again)
func TestARenderThatWasTooSlowIsTriedAgain(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	builder := &rendertest.Builder{}
	r := newReplicas(t, newSQLite(t), 1, control.Config{Builder: builder, Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})[0]
	slow := make(chan struct{})
	builder.Before = func(_ context.Context, job render.Job) error {
		select {
		case <-slow:
			return nil
		default:
			return &render.Error{Path: job.Path, Problem: "rendering took too long", Transient: true}
		}
	}
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{"app/kustomization.yaml": "resources: [cm.yaml]\n", "app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", func(d control.DeploymentView) error {
		if !strings.Contains(d.SourceError, "too long") {
			return fmt.Errorf("the error is %q", d.SourceError)
		}
		return nil
	})
	close(slow)
	later.Store(int64(6 * time.Minute))
	r.refresh(t)
	r.await(t, "app", everyTargetAt(commit))
}
