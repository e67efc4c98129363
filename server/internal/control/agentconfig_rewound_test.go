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

// awaitGiven waits until a deployment that has one target has given it a version that check is content with.
func (r *room) awaitGiven(t *testing.T, name string, check func(fleet.Desired) bool) fleet.Target {
	t.Helper()
	d := r.await(t, name, func(d control.DeploymentView) error {
		if len(d.Targets) != 1 || d.Targets[0].Desired.Digest == "" || !check(d.Targets[0].Desired) {
			return fmt.Errorf("its targets are %+v; %s", d.Targets, d.Message)
		}
		return nil
	})
	return d.Targets[0].Target
}

// Invariant 4: a backup is restored in which a file wants its deployment deleted when it leaves it. Since then the file
// has said otherwise, and has left it. The repository of the deployment is read first, so that its target is
// no longer behind when the file is read.
func TestWhatAFileHasLeftSinceABackupIsLetGoAndNotDeleted(t *testing.T) {
	t.Parallel()
	db := newSQLite(t)
	r := newRooms(t, db, 1, control.Config{})[0]
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
		t.Fatalf("after the restore it was given %+v", held.Desired)
	}
	r.report(t, paris, held, fleet.SyncSynced)

	ok(t, os.Rename(away, r.git.Dir("apps")))
	r.refresh(t)
	r.awaitLetGo(t, "paris.web")
}

// awaitLetGo waits until what a file has declared is let go, with its objects where they are.
func (r *room) awaitLetGo(t *testing.T, name string) {
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

// Once the file was read again it counts what it says: an agent that was ahead costs nobody their wish.
func TestAFileThatIsReadAgainAfterARewindMayDelete(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
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
