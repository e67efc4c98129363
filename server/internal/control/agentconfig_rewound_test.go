package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// awaitGiven waits until check accepts the version of the only target of a deployment.
func (r *replica) awaitGiven(t *testing.T, name string, check func(fleet.Desired) bool) fleet.Target {
	t.Helper()
	d := r.await(t, name, func(d control.DeploymentView) error {
		if len(d.Targets) != 1 || d.Targets[0].Desired.Digest == "" || !check(d.Targets[0].Desired) {
			return fmt.Errorf("its targets are %+v; %s", d.Targets, d.Message)
		}
		return nil
	})
	return d.Targets[0].Target
}

// Invariant 4: a restored backup has a file that demands the deletion of its deployment when it no longer lists
// it. Since then the file has changed that, and no longer lists it. The repository of the deployment is read
// first, so that its target is up to date when the file is read.
func TestWhatAFileHasLeftSinceABackupIsLetGoAndNotDeleted(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	r := newReplicas(t, db, 1, control.Config{})[0]
	paris := r.enroll(t, "paris")
	app, err := r.git.CreateHosted("web")
	ok(t, err)
	ok(t, errIgnored(app.CommitAndPush(t.Context(), map[string]string{"cm.yaml": configMap("web", "1")}, "first")))
	r.push(t, map[string]string{kedgeFile("paris"): "deployments:\n- name: web\n  source: {repoURL: '" + r.git.URL("web") + "'}\n  onRemove: prune\n"})
	r.configure(t, "paris")
	before := r.awaitGiven(t, "paris.web", func(fleet.Desired) bool { return true })

	r.kill()
	r.store = db.open(t)
	ok(t, r.store.Update(t.Context(), func(tx store.Tx) error {
		return tx.Settings().SetEpoch(t.Context(), before.Desired.Epoch+1)
	}))
	ok(t, errIgnored(r.repo.CommitAndPush(t.Context(), map[string]string{kedgeFile("paris"): declares()}, "nothing")))
	ok(t, errIgnored(app.CommitAndPush(t.Context(), map[string]string{"cm.yaml": configMap("web", "2")}, "second")))
	away := filepath.Join(t.TempDir(), "away")
	ok(t, os.Rename(r.git.Dir("apps"), away))
	r.start(t, filepath.Join(t.TempDir(), "git"), control.Config{
		Key: []byte(strings.Repeat("k", 32)), Version: "test", PollInterval: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	held := r.awaitGiven(t, "paris.web", func(d fleet.Desired) bool { return d.Epoch > before.Desired.Epoch })
	if !held.Desired.HoldPrune {
		t.Fatalf("after the restore it got %+v", held.Desired)
	}
	r.report(t, paris, held, fleet.SyncSynced)

	ok(t, os.Rename(away, r.git.Dir("apps")))
	r.refresh(t)
	r.awaitLetGo(t, "paris.web")
}

// awaitLetGo waits until a declared deployment is released, with its objects in place.
func (r *replica) awaitLetGo(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		d, err := r.Deployment(ctx, admin, "default", name)
		if errors.Is(err, store.ErrNotFound) {
			t.Fatal("it was deleted")
		}
		if err != nil {
			return err
		}
		if got := d.Targets[0].Desired; !got.Detached || got.Tombstone || d.Declared.ReleasedAt.IsZero() {
			return fmt.Errorf("%+v in %s", got, d.Environment)
		}
		return nil
	})
}

// After the file is read again, its content counts: an agent that was ahead does not change that.
func TestAFileThatIsReadAgainAfterARewindMayDelete(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web!"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	was := r.awaitGiven(t, "paris.web", func(fleet.Desired) bool { return true })
	ok(t, r.AgentAhead(t.Context(), paris, was.ID, fleet.Version{Epoch: was.Desired.Epoch, Generation: 41}))
	held := r.awaitGiven(t, "paris.web", func(d fleet.Desired) bool { return d.Generation == 42 })
	r.report(t, paris, held, fleet.SyncSynced)
	r.awaitConfig(t, "paris", func(c control.AgentConfigView) error {
		if c.State != fleet.ConfigApplied || c.Live != first || !c.Declarations[0].Prune {
			return fmt.Errorf("it is %q, live is %q, and of web is known %+v", c.State, c.Live, c.Declarations[0])
		}
		return nil
	})
	r.push(t, map[string]string{kedgeFile("paris"): declares()})
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		_, err := r.Deployment(ctx, admin, "default", "paris.web")
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}
