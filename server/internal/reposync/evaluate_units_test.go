package reposync

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite/sqlitetest"
)

// countingTx counts how often agents are read.
type countingTx struct {
	store.Tx
	reads *int
}

func (t countingTx) Agents() store.Agents {
	*t.reads++
	return t.Tx.Agents()
}

// fleetOf is a deployment on many agents, with a variant per label.
func fleetOf(t *testing.T, agents int, label func(i int) string) (*service, fleet.Deployment) {
	t.Helper()
	s := openService(t, sqlitetest.Path(t), Config{}, &dated{})
	for i := range agents {
		_, err := s.enroll(t.Context(), newAgent{
			Name: fmt.Sprintf("agent-%02d", i), Labels: map[string]string{"region": label(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := s.deploy(t.Context(), newDeployment{Name: "app", Source: fleet.Source{
		RepoURL: "https://example.com/a.git", Variables: map[string]string{"where": "in {agent.labels.region}"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, d.Deployment
}

// unitsOf returns the units of a deployment, and how often agents were read for them.
func unitsOf(t *testing.T, s *service, d fleet.Deployment) (units []Unit, reads int) {
	t.Helper()
	err := s.store.View(t.Context(), func(tx store.Tx) (err error) {
		repo, err := tx.Repositories().Get(t.Context(), d.TenantID, d.RepositoryID)
		if err != nil {
			return err
		}
		units, _, err = newWorker(s.sources, repo).units(t.Context(), countingTx{tx, &reads}, d)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return units, reads
}

func TestAgentsOfAllVariantsAreReadAtOnce(t *testing.T) {
	t.Parallel()
	s, d := fleetOf(t, 30, func(i int) string { return fmt.Sprint("r", i) })
	units, reads := unitsOf(t, s, d)
	if len(units) != 30 || reads != 1 {
		t.Errorf("%d variants were found with %d reads of agents, want 30 with one", len(units), reads)
	}
}

// An agent was relabeled, and its target is not moved yet: another one with the variant determines it.
func TestAVariantIsFoundThoughItsFirstAgentWasRelabelled(t *testing.T) {
	t.Parallel()
	s, d := fleetOf(t, 4, func(i int) string { return fmt.Sprint("r", i/2) })
	err := s.store.Update(t.Context(), func(tx store.Tx) error {
		a, err := tx.Agents().ByName(t.Context(), d.TenantID, "agent-00")
		if err != nil {
			return err
		}
		a.Labels["region"] = "elsewhere"
		return tx.Agents().Update(t.Context(), a)
	})
	if err != nil {
		t.Fatal(err)
	}
	units, reads := unitsOf(t, s, d)
	if len(units) != 2 || reads != 2 {
		t.Fatalf("%+v were found with %d reads of agents, want both variants with two", units, reads)
	}
	for _, u := range units {
		if u.agent == "agent-00" {
			t.Errorf("what agent-00 had is rendered as it is labelled now: %+v", u)
		}
	}
}

// countingStore counts the transactions that read.
type countingStore struct {
	store.Store
	views *atomic.Int64
}

func (s countingStore) View(ctx context.Context, f func(store.Tx) error) error {
	s.views.Add(1)
	return s.Store.View(ctx, f)
}

// A push evaluates every deployment of a repository, and reads them in one transaction for many.
func TestVariantsOfManyDeploymentsAreReadAtOnce(t *testing.T) {
	t.Parallel()
	s, first := fleetOf(t, 3, func(i int) string { return fmt.Sprint("r", i) })
	const deployments = 50
	for i := range deployments - 1 {
		_, err := s.deploy(t.Context(), newDeployment{Name: fmt.Sprint("app-", i), Source: first.Source})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []fleet.Deployment
	var repo fleet.Repository
	err := s.store.View(t.Context(), func(tx store.Tx) (err error) {
		if repo, err = tx.Repositories().Get(t.Context(), first.TenantID, first.RepositoryID); err != nil {
			return err
		}
		all, err = tx.Deployments().OfRepository(t.Context(), first.TenantID, first.RepositoryID)
		return err
	})
	if err != nil || len(all) != deployments {
		t.Fatalf("%d deployments, %v", len(all), err)
	}
	var views atomic.Int64
	s.sources.store = countingStore{s.store, &views}
	refs := map[string]gitsource.Ref{first.Source.Revision: {Commit: strings.Repeat("a", 40)}}
	out := make(chan evaluatedOutcome)
	go newWorker(s.sources, repo).evaluateEach(t.Context(), all, chunkDeployments, gitsource.Access{}, refs, out)
	for o := range out {
		if o.err != nil || len(o.parts) != 3 {
			t.Errorf("%s: %d variants, %v", o.deployment.Name, len(o.parts), o.err)
		}
	}
	if got := views.Load(); got != 1 {
		t.Errorf("%d deployments were read in %d transactions, want one", deployments, got)
	}
}
