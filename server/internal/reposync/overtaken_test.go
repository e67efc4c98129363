package reposync

import (
	"context"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// dated is a Git in which each commit has other content.
type dated struct{ scripted }

func (*dated) Tree(_ context.Context, _ gitsource.Access, commit string) (filetree.Tree, error) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {at: \"" + commit[:1] + " ${where}\"}\n"
	return memtree.New(map[string]string{"cm.yaml": text}), nil
}

// look evaluates a commit like the leader of a repository, without writing anything yet.
func look(t *testing.T, w *worker, commit string) []outcome {
	t.Helper()
	w.seen = map[unitKey]evaluation{}
	todo, err := w.read(t.Context(), wakeup{check: true})
	if err != nil {
		t.Fatal(err)
	}
	var deployments []fleet.Deployment
	err = w.svc.store.View(t.Context(), func(tx store.Tx) (err error) {
		deployments, err = tx.Deployments().OfRepository(t.Context(), w.tenant, w.id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []outcome
	for _, d := range deployments {
		refs := map[string]gitsource.Ref{}
		for _, revision := range todo.revisions() {
			refs[revision] = gitsource.Ref{Commit: strings.Repeat(commit, 40)}
		}
		for _, found := range w.evaluateSpecs(t.Context(), d, refs, newTreeCache(w.svc.git, todo.access)) {
			if found.err != nil {
				t.Fatal(found.err)
			}
			out = append(out, found.outcome)
		}
	}
	return out
}

// A slow leader lost its lock during a render. Its successor has read a newer commit: a late write of the old
// one must not bring the older commit back.
func TestALeaderThatWasOvertakenWritesNothing(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"one for all": "here", "a variant per agent": "in {agent.labels.region}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openService(t, sqlitetest.Path(t), Config{}, &dated{})
			ctx := t.Context()
			_, err := s.enroll(ctx, newAgent{Name: "paris", Labels: map[string]string{"region": "eu"}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.deploy(ctx, newDeployment{Name: "app", Source: fleet.Source{
				RepoURL: "https://example.com/a.git", Variables: map[string]string{"where": where},
			}})
			if err != nil {
				t.Fatal(err)
			}
			var repo fleet.Repository
			err = s.store.View(ctx, func(tx store.Tx) error {
				repos, err := tx.Repositories().ListAllTenants(ctx)
				if err == nil {
					repo = repos[0]
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			slow, successor := newWorker(s.sources, repo), newWorker(s.sources, repo)
			if _, err := slow.commit(ctx, look(t, slow, "1"), nil, wakeup{}, false); err != nil {
				t.Fatal(err)
			}
			slow.takePending()
			late := look(t, slow, "2")
			if _, err := successor.commit(ctx, look(t, successor, "3"), nil, wakeup{}, false); err != nil {
				t.Fatal(err)
			}
			before, err := s.deployment(ctx, "app")
			if err != nil || before.Rendered.Commit[:1] != "3" || before.Targets[0].Desired.Commit[:1] != "3" {
				t.Fatalf("the successor has recorded %+v, and given %+v: %v", before.Rendered, before.Targets[0].Desired, err)
			}
			if _, err := slow.commit(ctx, late, nil, wakeup{}, false); err != nil {
				t.Fatal(err)
			}
			after, err := s.deployment(ctx, "app")
			if err != nil {
				t.Fatal(err)
			}
			if after.Rendered.Commit != before.Rendered.Commit || after.Targets[0].Desired.Version != before.Targets[0].Desired.Version {
				t.Errorf("the older commit is back: rendered %+v, desired %+v", after.Rendered, after.Targets[0].Desired)
			}
			kept, err := s.revisions(ctx, "app")
			if err != nil || len(kept) != 2 {
				t.Errorf("kept are %+v, %v: want those of the first and of the last commit", kept, err)
			}
			if !slow.takePending().check {
				t.Error("the overtaken worker does not evaluate again: if it still leads, no other does")
			}
		})
	}
}

// Variants of one commit are rendered as agents join: a new one rendered by another replica also overtakes,
// even though the deployment is at the same commit.
func TestALeaderWhoseVariantAnotherHasRenderedWritesNothing(t *testing.T) {
	t.Parallel()
	s, d := fleetOf(t, 1, func(int) string { return "eu" })
	ctx := t.Context()
	var repo fleet.Repository
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		repo, err = tx.Repositories().Get(ctx, d.TenantID, d.RepositoryID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slow, successor := newWorker(s.sources, repo), newWorker(s.sources, repo)
	if _, err := slow.commit(ctx, look(t, slow, "1"), nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	slow.takePending()
	if _, err := s.enroll(ctx, newAgent{Name: "boston", Labels: map[string]string{"region": "us"}}); err != nil {
		t.Fatal(err)
	}
	late := look(t, slow, "1")
	if _, err := successor.commit(ctx, look(t, successor, "1"), nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.commit(ctx, late, nil, wakeup{}, false); err != nil {
		t.Fatal(err)
	}
	kept, err := s.revisions(ctx, "app")
	if err != nil || len(kept) != 2 || len(kept[0].Bundles) != 2 {
		t.Errorf("kept are %+v, %v: want one before boston came and one after", kept, err)
	}
	if !slow.takePending().check {
		t.Error("the overtaken worker does not evaluate again")
	}
}
