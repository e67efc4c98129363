package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// run requests a sync of a deployment.
func (d tenantClient) run(tb testing.TB, name, revision string) apiv1.SyncRun {
	tb.Helper()
	return decode[apiv1.SyncRun](tb, d.want(tb, 202, "POST", "deployments/"+name+"/runs", apiv1.CreateRun{Revision: revision}))
}

// awaitRun waits until a run is in a phase.
func (d tenantClient) awaitRun(tb testing.TB, id, phase string) apiv1.SyncRun {
	tb.Helper()
	var run apiv1.SyncRun
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		run = apiv1.SyncRun{}
		err := d.Call(ctx, "GET", d.path("runs/"+id), nil, &run)
		if err == nil && run.Phase != phase {
			err = fmt.Errorf("the run is %+v, not %s", run, phase)
		}
		return err
	})
	return run
}

// covers: A16
func TestManualDeploymentWaitsForItsRuns(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, first := pushTo(t, "one")
		a := light(t, d, "prod")
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{
			Name: "web", Source: apiv1.Source{RepoURL: repo.url}, Policy: apiv1.NewPolicy{Manual: true},
		})
		v := d.await(t, "web", says("OutOfSync", "sync"))
		if v.Commit != first || v.Targets[0].Commit != "" {
			t.Errorf("a manual deployment that was never synced reads %+v", v)
		}
		done := d.awaitRun(t, d.run(t, "web", "").ID, "Succeeded")
		if done.Commit != first || done.Seq != 1 || done.FinishedAt.Before(done.StartedAt) {
			t.Errorf("the first run is %+v", done)
		}
		d.await(t, "web", healthyAt(first, 1))
		second := repo.push(t, map[string]string{"cm.yaml": plainManifest("two")})
		d.look(t, repo.url)
		d.await(t, "web", func(v apiv1.Deployment) error {
			if v.Commit != second || v.Sync != "OutOfSync" || v.Targets[0].Commit != first {
				return fmt.Errorf("a newer commit does not wait")
			}
			return nil
		})

		// While the agent is away runs queue up, one after another, in order.
		a.stop()
		running := d.run(t, "web", "")
		waiting, last := d.run(t, "web", first), d.run(t, "web", "")
		d.awaitRun(t, running.ID, "Running")
		if a := d.ask(t, "PATCH", "runs/"+running.ID, apiv1.UpdateRun{Revision: first}); a.Code != 409 || !strings.Contains(string(a.Body), "started") {
			t.Errorf("a run that has started is changed: %d %s", a.Code, a.Body)
		}
		d.want(t, 200, "PATCH", "runs/"+last.ID, apiv1.UpdateRun{Revision: "main"})
		ended := decode[apiv1.SyncRun](t, d.want(t, 200, "POST", "runs/"+waiting.ID+"/terminate", nil))
		if ended.Phase != "Terminated" {
			t.Errorf("a run that was terminated is %+v", ended)
		}
		if next := get[apiv1.SyncRun](t, d, "runs/"+last.ID); next.Phase != "Pending" {
			t.Errorf("the next run does not wait for the one before: %+v", next)
		}
		s.again(t) // a killed server continues with them
		d.Server = s.Server
		newLightFleet(t, hostPort(s.URL)).run(t, a.name, a.token)
		one, two := d.awaitRun(t, running.ID, "Succeeded"), d.awaitRun(t, last.ID, "Succeeded")
		if two.StartedAt.Before(one.FinishedAt) || two.Commit != second {
			t.Errorf("runs are not one after another: %+v, %+v", one, two)
		}
		d.await(t, "web", healthyAt(second, 1))
		var seqs []int64
		for _, run := range all(t, d, "deployments/web/runs", "2", func(v apiv1.SyncRun) string { return v.ID }) {
			seqs = append(seqs, run.Seq)
		}
		if got := fmt.Sprint(seqs); got != "[4 3 2 1]" {
			t.Errorf("the runs are listed as %s", got)
		}
		for _, id := range []string{running.ID, last.ID} {
			if a := d.ask(t, "POST", "runs/"+id+"/terminate", nil); a.Code != 409 {
				t.Errorf("a run that is done is terminated: %d %s", a.Code, a.Body)
			}
		}
		out, err := s.kedge(t, "run", "get", "web", "--tenant", "acme")
		if err != nil || strings.Count(out, "Succeeded") != 6 || strings.Count(out, "Terminated ") < 1 {
			t.Errorf("kedge run get: %v\n%s", err, out)
		}
	})
}

// covers: A16, O4
func TestSyncFromTheCommandLineWaits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := s.tenantClient(t, "default")
	repo, commit := pushTo(t, "one")
	light(t, d, "prod")
	if out, err := s.kedge(t, "deploy", "create", "web", "--repo", repo.url, "--manual"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := s.kedge(t, "sync", "web", "--wait")
	if err != nil || !strings.Contains(out, "has succeeded") || !strings.Contains(out, commit[:12]) {
		t.Errorf("kedge sync --wait: %v\n%s", err, out)
	}
	out, err = s.kedge(t, "sync", "web", "--revision", "nowhere", "--wait")
	if code := exitCode(err); code != 3 || !strings.Contains(out, "nowhere") {
		t.Errorf("kedge sync to a revision that does not exist ends with %d:\n%s", code, out)
	}
}

// covers: A17
func TestRollbackWithoutGitStaysPinnedUntilReleased(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo := newRepo(t)
		light(t, d, "prod")
		var commits []string
		for i := range 3 {
			commits = append(commits, repo.push(t, map[string]string{"cm.yaml": plainManifest(fmt.Sprint(i))}))
			if i == 0 {
				d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
			} else {
				d.look(t, repo.url)
			}
			d.await(t, "web", healthyAt(commits[i], 1))
		}
		kept := get[apiv1.List[apiv1.Revision]](t, d, "deployments/web/revisions").Items
		if len(kept) != 3 || kept[0].Commit != commits[2] || kept[2].Commit != commits[0] {
			t.Fatalf("the kept revisions are %+v", kept)
		}

		repo.server.SetDown(true)
		out, err := s.kedge(t, "rollback", "web", "--revision", fmt.Sprint(kept[2].Seq), "--wait", "--tenant", "acme")
		if err != nil || !strings.Contains(out, "has succeeded") {
			t.Fatalf("kedge rollback with Git down: %v\n%s", err, out)
		}
		pinned := func(v apiv1.Deployment) error {
			if v.Pin == nil || v.Pin.Commit != commits[0] || !strings.Contains(v.Held.Text(), "pinned") || v.Targets[0].Commit != commits[0] || v.Targets[0].Sync == "Failed" {
				return fmt.Errorf("not visibly pinned to %s", commits[0])
			}
			return nil
		}
		d.await(t, "web", pinned)
		for _, args := range [][]string{{"status", "web"}, {"deploy", "history", "web"}} {
			if out, _ := s.kedge(t, append(args, "--tenant", "acme")...); !strings.Contains(strings.ToLower(out), "pinned") {
				t.Errorf("kedge %s does not show the pin:\n%s", strings.Join(args, " "), out)
			}
		}
		// Git is back with a newer commit: the deployment stays pinned.
		repo.server.SetDown(false)
		newest := repo.push(t, map[string]string{"cm.yaml": plainManifest("newest")})
		d.look(t, repo.url)
		d.await(t, "web", func(v apiv1.Deployment) error {
			if v.Commit != newest {
				return fmt.Errorf("the newest commit is not known")
			}
			return pinned(v)
		})
		s.again(t)
		d.Server = s.Server
		d.await(t, "web", pinned)
		d.want(t, 409, "POST", "deployments/web/runs", apiv1.CreateRun{})

		d.want(t, 200, "POST", "deployments/web/release", nil)
		v := d.await(t, "web", healthyAt(newest, 1))
		if v.Pin != nil || v.Held != nil {
			t.Errorf("after the release it is still held: %+v", v)
		}
	})
}

// covers: A17
func TestSuspensionHoldsAtEachLevel(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d := s.tenantClient(t, "acme")
	repo, commit := pushTo(t, "0")
	light(t, d, "prod")
	d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	d.await(t, "web", healthyAt(commit, 1))
	levels := []struct{ name, suspend, resume string }{
		{"deployment", "deploy suspend web", "deploy resume web"},
		{"environment", "env suspend default", "env resume default"},
		{"tenant", "tenant suspend acme", "tenant resume acme"},
		{"fleet", "fleet freeze", "fleet unfreeze"},
	}
	kedge := func(line string, more ...string) {
		t.Helper()
		if out, err := s.kedge(t, append(strings.Fields(line), append(more, "--tenant", "acme")...)...); err != nil {
			t.Fatalf("kedge %s: %v\n%s", line, err, out)
		}
	}
	for _, level := range levels {
		t.Run(level.name, func(t *testing.T) {
			kedge(level.suspend, "--reason", "the freeze of december")
			newer := repo.push(t, map[string]string{"cm.yaml": plainManifest(level.name)})
			d.look(t, repo.url)
			d.await(t, "web", func(v apiv1.Deployment) error {
				if v.Commit != newer || v.Sync != "OutOfSync" || v.Targets[0].Commit != commit {
					return fmt.Errorf("the newer commit is not known, or not held back")
				}
				if !strings.Contains(v.Held.Text(), "suspended") || !strings.Contains(v.Held.Text(), "december") {
					return fmt.Errorf("it does not say why")
				}
				return nil
			})
			if out, _ := s.kedge(t, "status", "web", "--tenant", "acme"); !strings.Contains(out, "december") {
				t.Errorf("kedge status does not show why nothing is sent:\n%s", out)
			}
			kedge(level.resume)
			v := d.await(t, "web", healthyAt(newer, 1))
			if v.Held != nil {
				t.Errorf("it is still held: %q", v.Held)
			}
			commit = newer
		})
	}
}
