package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// fileModel is the model of the file of an agent.
type fileModel struct {
	declared map[string]bool // by name: whether it is to be pruned when it leaves
	released map[string]bool
	pruned   map[string]int // how often each was deleted on purpose
}

// leave handles the deployments that a version does not have.
func (m *fileModel) leave(keep map[string]bool, list bool) {
	for name, prune := range m.declared {
		if _, ok := keep[name]; ok {
			continue
		}
		if prune && list {
			m.pruned[name]++
		} else {
			m.released[name] = true
		}
	}
	for name := range keep {
		delete(m.released, name)
	}
	m.declared = keep
}

// fileWorld runs random versions of a file against the model.
type fileWorld struct {
	*replica
	db    *testDatabase
	dir   string
	model fileModel
	wrong bool // the newest version is
	steps int
}

// version creates the next version of the file, and its meaning.
func (w *fileWorld) version(rng *rand.Rand) string {
	kind := rng.IntN(7)
	w.wrong = kind == 2
	switch kind {
	case 0:
		w.model.leave(map[string]bool{}, false)
		return gitserver.Deleted
	case 1:
		w.model.leave(map[string]bool{}, false)
		return "# nothing\n"
	case 2:
		return "deployments:\n- name: a\n  nonsense: true\n" // means nothing
	case 3:
		w.model.leave(map[string]bool{}, true)
		return declares()
	}
	keep := map[string]bool{}
	for _, name := range []string{"a", "b", "c"} {
		if rng.IntN(2) == 0 {
			keep[name] = rng.IntN(2) == 0
		}
	}
	w.model.leave(keep, true)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if keep[name] {
			name += "!"
		}
		names = append(names, name)
	}
	return declares(names...)
}

// step changes the file, and waits until it was read: the file of another agent, which is read later, shows
// that.
func (w *fileWorld) step(t *testing.T, rng *rand.Rand) {
	t.Helper()
	w.steps++
	text := w.version(rng)
	commit := w.push(t, map[string]string{kedgeFile("paris"): text, kedgeFile("zeta"): fmt.Sprintf("tick-%d: 1\n", w.steps)})
	w.awaitConfig(t, "zeta", inState(fleet.ConfigInvalid, commit))
}

func (w *fileWorld) restart(t *testing.T) {
	t.Helper()
	w.kill()
	w.replica.store = w.db.open(t)
	w.start(t, filepath.Join(w.dir, fmt.Sprint("git-", w.steps)), control.Config{
		Key: []byte(strings.Repeat("k", 32)), Version: "test", PollInterval: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
}

func (w *fileWorld) unset(t *testing.T, rng *rand.Rand) {
	t.Helper()
	was := w.model.declared
	ok(t, w.UnsetAgentConfig(t.Context(), admin, "default", "paris"))
	w.model.leave(map[string]bool{}, false)
	w.check(t)
	if rng.IntN(2) == 0 { // else the same file is read again
		w.push(t, map[string]string{kedgeFile("paris"): gitserver.Deleted})
		w.wrong = false
	} else if !w.wrong {
		maps.Copy(w.model.declared, was)
		for name := range was {
			delete(w.model.released, name)
		}
	}
	w.configure(t, "paris")
	w.awaitConfig(t, "paris", func(c control.AgentConfigView) error {
		if c.State == fleet.ConfigPending {
			return errors.New("it was not read yet")
		}
		return nil
	})
}

// check compares what there is with the model.
func (w *fileWorld) check(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		for name := range w.model.declared {
			d, err := w.Deployment(ctx, admin, "default", "paris."+name)
			if err != nil {
				return err
			}
			if len(d.Targets) != 1 || d.Targets[0].Desired.Digest == "" || d.Targets[0].Desired.Detached {
				return errors.New(name + " has no target with a bundle")
			}
		}
		return nil
	})
	list, err := w.Deployments(t.Context(), admin, "default", control.ListDeployments{Page: store.Whole()})
	ok(t, err)
	got := fileModel{declared: map[string]bool{}, released: map[string]bool{}, pruned: map[string]int{}}
	for _, d := range list {
		name := strings.TrimPrefix(d.Name, "paris.")
		switch {
		case !d.DeletedAt.IsZero():
			got.pruned[name]++
		case d.Declared == nil:
			t.Errorf("%s is not declared", d.Name)
		case d.Declared.ReleasedAt.IsZero():
			got.declared[name] = d.Declared.Prune
		default:
			got.released[name] = true
		}
	}
	if diff := cmp.Diff(w.model, got, cmp.AllowUnexported(fileModel{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("after step %d deployments differ (-want +got):\n%s", w.steps, diff)
	}
	ok(t, w.replica.store.View(t.Context(), func(tx store.Tx) error {
		for _, d := range list {
			targets, err := tx.Targets().OfDeployment(t.Context(), d.TenantID, d.ID)
			if err != nil {
				return err
			}
			for _, target := range targets {
				if target.Desired.Tombstone && d.DeletedAt.IsZero() {
					t.Errorf("after step %d %s has a tombstone without a request", w.steps, d.Name)
				}
			}
		}
		return nil
	}))
}

// covers: F1, F2 (for any push: the newest valid file determines the declarations, and nothing is deleted
// unless a file demands it)
func TestRandomFilesDeclareWhatTheySayAndDeleteNothingElse(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{0, 1, 2, 3}, func(t *testing.T, seed uint64) {
		t.Parallel()
		db := newSQLite(t)
		w := &fileWorld{replica: newReplicas(t, db, 1, control.Config{})[0], db: db, dir: t.TempDir(), model: fileModel{
			declared: map[string]bool{}, released: map[string]bool{}, pruned: map[string]int{}}}
		w.enroll(t, "paris")
		w.enroll(t, "zeta")
		w.push(t, manifests("a", "b", "c"))
		w.configure(t, "paris")
		w.configure(t, "zeta")
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 14 {
			switch rng.IntN(8) {
			case 0:
				w.restart(t)
			case 1:
				w.unset(t, rng)
			default:
				w.step(t, rng)
			}
			if w.check(t); t.Failed() {
				return
			}
		}
	})
}
