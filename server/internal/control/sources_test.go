package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: G5
func TestPushBecomesANewGenerationForEveryTarget(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris, rome := r.enroll(t, "paris"), r.enroll(t, "rome")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	before := r.await(t, "app", atCommit(first))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	after := r.await(t, "app", atCommit(second))
	if after.Rendered.Digest == before.Rendered.Digest {
		t.Fatal("a changed value kept the digest")
	}
	for _, agent := range []fleet.Agent{paris, rome} {
		targets, err := r.TargetsOf(t.Context(), agent, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(targets) != 1 || targets[0].Desired.Generation != 2 || targets[0].Desired.Digest != after.Rendered.Digest {
			t.Errorf("%s: %+v", agent.Name, targets)
		}
	}
}

// covers: G6
func TestCommitThatTouchesNothingRelevantChangesNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"a/cm.yaml": configMap("a", "1"), "b/cm.yaml": configMap("b", "1")})
	r.deploy(t, "a", "a")
	r.deploy(t, "b", "b")
	r.await(t, "a", atCommit(first))
	untouched := r.await(t, "b", atCommit(first))
	second := r.push(t, map[string]string{"a/cm.yaml": configMap("a", "2"), "README.md": "new"})
	r.await(t, "a", atCommit(second)) // b was looked at in the same run
	b, err := r.Deployment(t.Context(), admin, "default", "b")
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(b.Rendered, untouched.Rendered) || !cmp.Equal(b.Targets[0].Desired, untouched.Targets[0].Desired) {
		t.Fatalf("b changed from %+v to %+v", untouched.Rendered, b.Rendered)
	}
}

// covers: A12
func TestBrokenCommitKeepsWhatRunsAndNamesTheFile(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		files  map[string]string
		want   string
	}{
		"NotYAML":   {"a syntax error refuses the whole commit", map[string]string{"app/b.yaml": "{not yaml"}, "app/b.yaml"},
		"Duplicate": {"two objects of one name", map[string]string{"app/b.yaml": configMap("a", "other")}, "app/b.yaml"},
		"NoName":    {"an object has to be named", map[string]string{"app/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"}, "app/b.yaml"},
		"Emptied":   {"an empty tree deletes nothing", map[string]string{"app/cm.yaml": gitserver.Deleted, "app/README.md": "moved"}, "allowEmpty"},
		"Gone":      {"a missing folder deletes nothing", map[string]string{"app/cm.yaml": gitserver.Deleted}, "app"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t)
			r.enroll(t, "paris")
			good := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
			r.deploy(t, "app", "app")
			before := r.await(t, "app", atCommit(good))
			r.push(t, tc.files)
			d := r.await(t, "app", func(d control.DeploymentView) error {
				if d.SourceError == "" {
					return errors.New("no error yet")
				}
				return nil
			})
			if !strings.Contains(d.SourceError, tc.want) || d.Sync != fleet.SyncFailed {
				t.Errorf("%s: sync %s, %q does not name %q", tc.reason, d.Sync, d.SourceError, tc.want)
			}
			if !cmp.Equal(d.Rendered, before.Rendered) || !cmp.Equal(d.Targets[0].Desired, before.Targets[0].Desired) {
				t.Errorf("%s: the running state changed: %+v", tc.reason, d.Targets[0].Desired)
			}
			fixed := r.push(t, map[string]string{"app/b.yaml": configMap("b", "1"), "app/cm.yaml": configMap("a", "2")})
			if d := r.await(t, "app", atCommit(fixed)); d.SourceError != "" {
				t.Errorf("%s: the error stays after the fix: %q", tc.reason, d.SourceError)
			}
		})
	}
}

func TestVanishedRepositoryIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	good := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	before := r.await(t, "app", atCommit(good))
	r.git.SetDown(true)
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Push(t.Context(), repos[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	d := r.await(t, "app", func(d control.DeploymentView) error {
		if d.Sync != fleet.SyncFailed || !strings.Contains(d.Message, "continues to run") {
			return fmt.Errorf("sync %s, message %q", d.Sync, d.Message)
		}
		return nil
	})
	if !cmp.Equal(d.Targets[0].Desired, before.Targets[0].Desired) {
		t.Error("the running state changed")
	}
	r.git.SetDown(false)
	r.await(t, "app", func(d control.DeploymentView) error { // by the retry alone
		if d.Sync == fleet.SyncFailed {
			return errors.New(d.Message)
		}
		return nil
	})
}

// covers: G4
func TestEmptyRepositoryWaitsQuietlyAndStartsWithTheFirstPush(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	r.deploy(t, "app", "app")
	looked := func(d control.DeploymentView) error {
		repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
		if err == nil && repos[0].CheckedAt.IsZero() {
			err = errors.New("not looked at yet")
		}
		return err
	}
	if d := r.await(t, "app", looked); d.Sync != fleet.SyncPending {
		t.Errorf("an empty repository reads %s: %s", d.Sync, d.Message)
	}
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	if d := r.await(t, "app", atCommit(commit)); d.SourceError != "" {
		t.Errorf("got %q", d.SourceError)
	}
}

func TestSameContentUnderAnotherNameKeepsTheGeneration(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	before := r.await(t, "app", atCommit(first))
	second := r.push(t, map[string]string{"app/cm.yaml": gitserver.Deleted, "app/renamed.yaml": "# a comment\n" + configMap("a", "1")})
	after := r.await(t, "app", atCommit(second))
	if after.Targets[0].Desired.Version != before.Targets[0].Desired.Version {
		t.Fatalf("generation moved from %+v to %+v though nothing changed", before.Targets[0].Desired, after.Targets[0].Desired)
	}
}

// covers: G5
func TestPushesOfOtherBranchesDoNotPutOffThePoll(t *testing.T) {
	t.Parallel()
	r := newPollingReplica(t, time.Second)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(first))
	repos, err := r.Repositories(t.Context(), admin, "default", store.RepositoryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	// The webhook of this one is lost, while those of another branch arrive.
	lost, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/cm.yaml": configMap("a", "2")}, "lost")
	if err != nil {
		t.Fatal(err)
	}
	r.await(t, "app", func(d control.DeploymentView) error {
		if err := r.Push(t.Context(), repos[0].ID, "refs/heads/feature"); err != nil {
			return err
		}
		return atCommit(lost)(d)
	})
}

func TestHeadIsTheDefaultBranch(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	if _, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app", Revision: "HEAD"},
	}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "app", atCommit(first))
	r.await(t, "app", atCommit(r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})))
}

func TestCursorsThatAreNotOfThisDatabaseAreLost(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	err := r.Follow(t.Context(), admin, "default", 1<<40, func([]store.Change) error { return nil })
	if !errors.Is(err, changefeed.ErrCursorLost) {
		t.Fatalf("got %v", err)
	}
}
