package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Listings lists a page by every filter alone and by all together, and reads what a page shows, so that a store
// can check the plans of its queries. There are many rows and no match.
func Listings(t *testing.T, s store.Store) {
	t.Helper()
	w := newWorld(t, s, "a")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range 5 {
			if err := tx.Deployments().Create(ctx, newDeployment(w, fmt.Sprint("more-", i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := s.View(t.Context(), func(tx store.Tx) error { return askEverything(t.Context(), tx, w.tenant.ID) }); err != nil {
		t.Fatal(err)
	}
}

func askEverything(ctx context.Context, tx store.Tx, tenant fleet.TenantID) error {
	deployments := []store.DeploymentFilter{
		{}, {Page: store.Page{After: "a", AfterID: "b"}}, {Environment: "e"}, {Repository: "r"}, {Agent: "a"}, {Text: "needle"},
		{Text: "two words"}, {Labels: map[string]string{"a": "b"}}, {Labels: map[string]string{"a": "b", "c": "d"}},
		{Selector: fleet.LabelSelector{{Key: "a", Operator: fleet.LabelIn, Values: []string{"b"}}, {Key: "c", Operator: fleet.LabelDoesNotExist}}},
		{
			Environment: "e", Repository: "r", Agent: "a", Sync: fleet.SyncSynced, Health: fleet.HealthCurrent,
			Labels: map[string]string{"a": "b"}, Text: "needle",
		},
	}
	targets := []store.TargetFilter{
		{}, {Agent: "a"}, {Stale: new(true)}, {Stale: new(false)},
		{Agent: "a", Sync: fleet.SyncFailed, Health: fleet.HealthFailed, Stale: new(false), Held: true},
	}
	for _, word := range syncWords {
		deployments = append(deployments, store.DeploymentFilter{Sync: word})
		targets = append(targets, store.TargetFilter{Sync: word}, store.TargetFilter{Sync: word, Held: true})
	}
	for _, word := range healthWords {
		deployments = append(deployments, store.DeploymentFilter{Health: word})
		targets = append(targets, store.TargetFilter{Health: word})
	}
	for _, f := range deployments {
		f.Limit = 1
		if _, err := tx.Deployments().List(ctx, tenant, f); err != nil {
			return fmt.Errorf("deployments by %+v: %w", f, err)
		}
	}
	for _, f := range targets {
		if _, err := tx.Targets().PageOfDeployment(ctx, tenant, "dep-1", f); err != nil {
			return fmt.Errorf("targets by %+v: %w", f, err)
		}
	}
	_, tally := tx.Targets().Tally(ctx, tenant, []fleet.DeploymentID{"dep-1"})
	_, worst := tx.Targets().List(ctx, tenant, []fleet.TargetID{"tgt-1"})
	_, variants := tx.Targets().Variants(ctx, tenant, []fleet.TargetID{"tgt-1"})
	_, problems := tx.Repositories().Problems(ctx, tenant, []fleet.RepositoryID{"rep-1"})
	_, members := tx.Members().List(ctx, tenant, store.Page{})
	_, tokens := tx.Tokens().APITokens(ctx, tenant, store.Page{})
	_, ofFleet := tx.Tokens().APITokens(ctx, "", store.Page{})
	_, ofAgent := tx.Tokens().AgentTokens(ctx, tenant, "agt-1", store.Page{})
	_, given := tx.Grants().Given(ctx, tenant, store.Page{})
	_, received := tx.Grants().To(ctx, tenant, store.Page{})
	_, revisions := tx.Revisions().List(ctx, tenant, "dep-1", store.Page{})
	return errors.Join(tally, worst, variants, problems, members, tokens, ofFleet, ofAgent, given, received, revisions)
}
