package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// tell reports that any branch may have moved, like a webhook without refs.
func (r *replica) tell(t *testing.T) {
	t.Helper()
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	ok(t, err)
	for _, repo := range repos {
		ok(t, r.Push(t.Context(), repo.ID, ""))
	}
}

// rewrite replaces everything after commit by another one.
func (r *replica) rewrite(t *testing.T, commit string, files map[string]string) string {
	t.Helper()
	ok(t, r.repo.Reset(t.Context(), commit))
	instead, err := r.repo.Commit(t.Context(), files, "instead")
	ok(t, err)
	ok(t, r.repo.ForcePush(t.Context()))
	r.tell(t)
	return instead
}

// covers: G4 (force-push followed), A6 (what a rewritten history no longer has is not deleted by mistake)
func TestAForcePushIsFollowedAndShown(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	base := r.push(t, map[string]string{"README.md": "1", "beside/cm.yaml": configMap("beside", "1")})
	r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	old := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	r.deploy(t, "app", "app")
	r.deploy(t, "beside", "beside")
	before := r.await(t, "app", atCommit(old))

	// Another history with the same folder changes nothing.
	same := r.rewrite(t, base, map[string]string{"app/cm.yaml": configMap("a", "2"), "beside/cm.yaml": configMap("beside", "2")})
	r.await(t, "beside", atCommit(same)) // app was looked at in the same round
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	if ok(t, err); d.SourceError != "" || !cmp.Equal(d.Targets[0].Desired, before.Targets[0].Desired) {
		t.Errorf("error %q, desired %+v, before %+v", d.SourceError, d.Targets[0].Desired, before.Targets[0].Desired)
	}

	// A commit without the folder is reported, and removes nothing.
	r.rewrite(t, base, map[string]string{"README.md": "2"})
	d = r.await(t, "app", saying("app: there is no such folder"))
	if d.Sync != fleet.SyncFailed || !strings.Contains(d.Message, fmt.Sprintf("commit %.12s continues to run", old)) {
		t.Errorf("it reads %s: %s", d.Sync, d.Message)
	}
	if !cmp.Equal(d.Rendered, before.Rendered) || !cmp.Equal(d.Targets[0].Desired, before.Targets[0].Desired) {
		t.Errorf("the running state changed: %+v, before %+v", d.Targets[0].Desired, before.Targets[0].Desired)
	}

	// A commit with another value is sent.
	other := r.rewrite(t, base, map[string]string{"app/cm.yaml": configMap("a", "3")})
	d = r.await(t, "app", everyTargetAt(other))
	if d.SourceError != "" || d.Targets[0].Desired.Digest == before.Rendered.Digest {
		t.Errorf("error %q, desired %+v", d.SourceError, d.Targets[0].Desired)
	}
}

// covers: G4 (deleted ref reported), A6
func TestADeletedBranchIsShownAndWhatRunsStays(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	ok(t, r.repo.Switch(t.Context(), "release"))
	released, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/cm.yaml": configMap("a", "released")}, "release")
	ok(t, err)
	r.deploy(t, "main", "app")
	r.deploySource(t, "app", fleet.Source{Path: "app", Revision: "release"})
	r.await(t, "main", atCommit(first))
	before := r.await(t, "app", atCommit(released))

	ok(t, r.repo.DeleteRemote(t.Context(), "refs/heads/release"))
	r.tell(t)
	d := r.await(t, "app", saying(`"release"`))
	if d.Sync != fleet.SyncFailed || !strings.Contains(d.Message, "continues to run") {
		t.Errorf("it reads %s: %s", d.Sync, d.Message)
	}
	if !cmp.Equal(d.Rendered, before.Rendered) || !cmp.Equal(d.Targets[0].Desired, before.Targets[0].Desired) {
		t.Errorf("the running state changed: %+v, before %+v", d.Targets[0].Desired, before.Targets[0].Desired)
	}
	other, err := r.Deployment(t.Context(), admin, "default", "main")
	if ok(t, err); other.SourceError != "" || other.Sync == fleet.SyncFailed {
		t.Errorf("a deployment of another branch reads %s: %s", other.Sync, other.SourceError)
	}

	ok(t, r.repo.Reset(t.Context(), released)) // it is back, at the same commit
	r.tell(t)
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.SourceError != "" || d.Sync == fleet.SyncFailed {
			return errors.New(d.Message)
		}
		return nil
	})
}

// However many deployments and revisions of a repository there are, one push is one fetch.
func TestAPushIsOneFetchForAllDeployments(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("main", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(first))
	requests := func(value string, await func(commits map[string]string) error) int64 {
		t.Helper()
		commits := map[string]string{}
		for _, branch := range []string{"one", "two", "three", "main"} {
			ok(t, r.repo.Switch(t.Context(), branch))
			commit, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/cm.yaml": configMap(branch, value)}, value)
			ok(t, err)
			commits[branch] = commit
		}
		before := r.git.Requests()
		r.tell(t)
		testkit.Eventually(t, patience, func(context.Context) error { return await(commits) })
		r.looked(t)
		return r.git.Requests() - before
	}
	alone := requests("2", func(commits map[string]string) error {
		d, err := r.Deployment(t.Context(), admin, "default", "app")
		return errors.Join(err, atCommit(commits["main"])(d))
	})
	revisions := map[string]string{"app": "main"}
	for i := range 24 {
		name, revision := fmt.Sprintf("app-%02d", i), []string{"one", "two", "three", "main"}[i%4]
		r.deploySource(t, name, fleet.Source{Path: "app", Revision: revision})
		revisions[name] = revision
	}
	for name := range revisions {
		r.await(t, name, func(d control.DeploymentView) error {
			if d.Rendered.Commit == "" {
				return errors.New("not rendered")
			}
			return nil
		})
	}
	many := requests("3", func(commits map[string]string) error {
		for name, revision := range revisions {
			d, err := r.Deployment(t.Context(), admin, "default", name)
			if err := errors.Join(err, atCommit(commits[revision])(d)); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d requests for one deployment, %d for %d of four branches", alone, many, len(revisions))
	if alone == 0 || many != alone {
		t.Errorf("%d deployments of four branches cost %d requests, one costs %d", len(revisions), many, alone)
	}
}
