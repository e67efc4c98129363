package reposync

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// passesOf creates deployments of one repository, with an agent, and two workers for it.
func passesOf(t *testing.T, names ...string) (s *service, w, other *worker) {
	t.Helper()
	s = openService(t, sqlitetest.Path(t), Config{}, &dated{})
	if _, err := s.enroll(t.Context(), newAgent{Name: "paris"}); err != nil {
		t.Fatal(err)
	}
	var d view
	for _, name := range names {
		var err error
		d, err = s.deploy(t.Context(), newDeployment{Name: name, Source: fleet.Source{RepoURL: "https://example.com/a.git"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var repo fleet.Repository
	err := s.store.View(t.Context(), func(tx store.Tx) (err error) {
		repo, err = tx.Repositories().Get(t.Context(), d.TenantID, d.RepositoryID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w = newWorker(s.sources, repo)
	w.busy, w.owed = map[fleet.DeploymentID]*pass{}, map[fleet.DeploymentID]wakeup{}
	return s, w, newWorker(s.sources, repo)
}

// A pass works on the deployments as they are when it claims them: an earlier pass may have recorded a commit
// since the repository was read, and a revert of it would look like no change.
func TestAPassReadsWhatItTakes(t *testing.T) {
	t.Parallel()
	_, w, other := passesOf(t, "app")
	todo, err := w.read(t.Context(), wakeup{check: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.commit(t.Context(), look(t, other, "1"), nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	taken, err := w.claimAll(t.Context(), newPass(todo.due), todo, map[string]gitsource.Ref{"": {Commit: strings.Repeat("2", 40)}})
	if err != nil || len(taken) != 1 || !strings.HasPrefix(taken[0].Rendered.Commit, "1") {
		t.Errorf("the pass has %+v, %v", taken, err)
	}
}

// covers: A14 (a sync of one deployment knows of the others that are being rendered)
func TestAPassKnowsOfWhatItIsNotAskedFor(t *testing.T) {
	t.Parallel()
	_, w, _ := passesOf(t, "giver", "taker")
	todo, err := w.read(t.Context(), wakeup{check: true})
	if err != nil {
		t.Fatal(err)
	}
	giver, taker := todo.deployments[0], todo.deployments[1]
	slow := newPass(wakeup{})
	w.claim(slow, taker.ID, wakeup{})
	todo.due = wakeup{runs: map[fleet.DeploymentID]bool{giver.ID: true}}
	todo.runs = []fleet.SyncRun{{DeploymentID: giver.ID}}
	r := newPass(todo.due)
	taken, err := w.claimAll(t.Context(), r, todo, map[string]gitsource.Ref{"": {Commit: strings.Repeat("2", 40)}})
	if err != nil || len(taken) != 1 || taken[0].ID != giver.ID || !r.skipped {
		t.Fatalf("the pass has %+v, and passed something over: %t, %v", taken, r.skipped, err)
	}
	w.takePending()
	w.freeAll(slow)
	if due := w.takePending(); !due.check || !due.runs[giver.ID] {
		t.Errorf("with the other one free the worker is woken for %+v", due)
	}
}

// covers: A14 (what is written together is written together or, where it takes objects away, not at all)
func TestNothingIsTakenAwayWithoutWhatWasOvertaken(t *testing.T) {
	t.Parallel()
	s, w, other := passesOf(t, "giver", "taker")
	ctx := t.Context()
	if _, err := w.commit(ctx, look(t, w, "1"), nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	both := look(t, w, "2")
	if _, err := other.commit(ctx, look(t, other, "3")[1:], nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	w.takePending()
	overtaken, err := w.commit(ctx, both, nil, wakeup{}, true)
	if err != nil || !overtaken || !w.takePending().check {
		t.Errorf("overtaken %t, %v", overtaken, err)
	}
	d, err := s.deployment(ctx, "giver")
	if err != nil || !strings.HasPrefix(d.Rendered.Commit, "1") || !strings.HasPrefix(d.Targets[0].Desired.Commit, "1") {
		t.Errorf("the giver is at %+v, %+v, %v", d.Rendered, d.Targets[0].Desired, err)
	}
}

// covers: A14 (a deployment is looked at alone only while it has nothing to lose)
func TestADeploymentIsLookedAtAloneOnlyWhileItIsNew(t *testing.T) {
	t.Parallel()
	_, w, other := passesOf(t, "app", "more")
	todo, err := w.read(t.Context(), wakeup{check: true})
	if err != nil {
		t.Fatal(err)
	}
	app := todo.deployments[0].ID
	added := wakeup{added: map[fleet.DeploymentID]bool{app: true}}
	if todo, err = w.read(t.Context(), added); err != nil || len(todo.deployments) != 1 || todo.deployments[0].ID != app {
		t.Fatalf("a new deployment: %+v, %v", todo.deployments, err)
	}
	if _, err := other.commit(t.Context(), look(t, other, "1"), nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	refs := map[string]gitsource.Ref{"": {Commit: strings.Repeat("2", 40)}}
	if taken, err := w.claimAll(t.Context(), newPass(added), todo, refs); err != nil || len(taken) != 0 {
		t.Errorf("a pass claims %+v, %v although it was evaluated in the meantime", taken, err)
	}
	if todo, err = w.read(t.Context(), added); err != nil || len(todo.deployments) != 0 {
		t.Errorf("an evaluated one: %+v, %v", todo.deployments, err)
	}
}
