package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func evaluatedTo(commit string) func(control.DeploymentView) error {
	return func(d control.DeploymentView) error {
		if d.Evaluated != commit {
			return fmt.Errorf("evaluated up to %q, not %q; %s", d.Evaluated, commit, d.Message)
		}
		return nil
	}
}

func TestACommitThatTouchesNothingOfADeploymentIsEvaluatedInOneWrite(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		r := newReplicas(t, db, 1, control.Config{})[0]
		r.enroll(t, "paris")
		files := map[string]string{}
		for i := range 5 {
			files[fmt.Sprintf("app-%d/cm.yaml", i)] = configMap("a", "1")
		}
		first := r.push(t, files)
		for i := range 5 {
			r.deploy(t, fmt.Sprint("app-", i), fmt.Sprint("app-", i))
		}
		for i := range 5 {
			r.await(t, fmt.Sprint("app-", i), evaluatedTo(first))
		}
		before := r.lastChange(t)
		second := r.push(t, map[string]string{"README.md": "hello"})
		for i := range 5 {
			d := r.await(t, fmt.Sprint("app-", i), evaluatedTo(second))
			if d.Rendered.Commit != first {
				t.Errorf("%s was written for a commit that touches nothing of it: %+v", d.Name, d.Rendered)
			}
		}
		news := 0
		for _, c := range r.changesAfter(t, before) {
			switch c {
			case store.ChangeWake:
			case store.ChangeRepository:
				news++
			default:
				t.Errorf("the push has cost a %s", c)
			}
		}
		if news != 1 {
			t.Errorf("the push has cost %d writes to its repository, want 1", news)
		}
		// The same once more, after a look that finds nothing new.
		r.refresh(t)
		third := r.push(t, map[string]string{"app-3/cm.yaml": configMap("a", "2")})
		r.await(t, "app-3", atCommit(third))
		r.await(t, "app-0", evaluatedTo(third))
	})
}

func (r *replica) lastChange(t *testing.T) (seq int64) {
	t.Helper()
	ok(t, r.store.View(t.Context(), func(tx store.Tx) (err error) {
		seq, err = tx.Changes().Last(t.Context())
		return err
	}))
	return seq
}

func (r *replica) changesAfter(t *testing.T, seq int64) (kinds []store.ChangeKind) {
	t.Helper()
	ok(t, r.store.View(t.Context(), func(tx store.Tx) error {
		changes, err := tx.Changes().AfterAllTenants(t.Context(), seq, 1000)
		for _, c := range changes {
			kinds = append(kinds, c.Kind)
		}
		return err
	}))
	return kinds
}

func TestTheTimeOfALookMovesWithoutAWrite(t *testing.T) {
	t.Parallel()
	r := newPollingReplica(t, 20*time.Millisecond)
	r.enroll(t, "paris")
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	d := r.await(t, "app", evaluatedTo(commit))
	read := func(ctx context.Context) (shown, stored time.Time, err error) {
		view, err := r.Repository(ctx, admin, "default", d.RepositoryID)
		if err != nil {
			return shown, stored, err
		}
		err = r.store.View(ctx, func(tx store.Tx) error {
			row, err := tx.Repositories().Get(ctx, d.TenantID, d.RepositoryID)
			stored = row.CheckedAt
			return err
		})
		return view.CheckedAt, stored, err
	}
	var first time.Time
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		_, stored, err := read(ctx)
		if err == nil && stored.IsZero() {
			err = fmt.Errorf("not checked yet")
		}
		first = stored
		return err
	})
	last := r.lastChange(t)
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		shown, stored, err := read(ctx)
		if err == nil && !stored.Equal(first) {
			t.Fatalf("a look that found nothing new was stored, at %s after %s", stored, first)
		}
		if err == nil && !shown.After(first.Add(100*time.Millisecond)) {
			err = fmt.Errorf("still shown as looked at at %s", shown)
		}
		return err
	})
	if now := r.lastChange(t); now != last {
		t.Errorf("looking has recorded changes %d to %d", last, now)
	}
}
