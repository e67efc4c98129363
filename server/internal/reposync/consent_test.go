package reposync

import (
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// An edit that could not be evaluated for long, because Git did not respond or the server was down, is no
// consent to the later content of Git.
func TestAnEditThatIsLookedAtLateIsNoConsent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late time.Duration
		want bool
	}{"at once": {time.Second, true}, "days later": {48 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := time.Now()
			s := openService(t, sqlitetest.Path(t), Config{Now: func() time.Time { return clock }}, &dated{})
			ctx := t.Context()
			_, err := s.enroll(ctx, newAgent{Name: "paris"})
			if err != nil {
				t.Fatal(err)
			}
			source := fleet.Source{RepoURL: "https://example.com/a.git", Variables: map[string]string{"where": "here"}}
			if _, err = s.deploy(ctx, newDeployment{Name: "app", Source: source}); err != nil {
				t.Fatal(err)
			}
			var repos []fleet.Repository
			err = s.store.View(ctx, func(tx store.Tx) (err error) {
				repos, err = tx.Repositories().ListAllTenants(ctx)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			w := newWorker(s.sources, repos[0])
			if _, err := w.commit(ctx, look(t, w, "1"), nil, wakeup{}, false); err != nil {
				t.Fatal(err)
			}
			source.Variables = map[string]string{"where": "there"}
			if err = s.edit(ctx, "app", source); err != nil {
				t.Fatal(err)
			}
			clock = clock.Add(c.late)
			if _, err := w.commit(ctx, look(t, w, "1"), nil, wakeup{}, false); err != nil {
				t.Fatal(err)
			}
			d, err := s.deployment(ctx, "app")
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Targets[0].Desired; got.Generation != 2 || got.Consent != c.want || d.Pending != nil {
				t.Errorf("it is given %+v, pending %v; want consent: %v", got, d.Pending, c.want)
			}
		})
	}
}
