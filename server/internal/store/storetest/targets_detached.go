package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// detachedAreListed by the names of deployment and agent, page by page, of one tenant.
func detachedAreListed(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	newWorld(t, s, "b") // whose target is detached too
	second := newAgent(w.tenant.ID, "second")
	belongs, left := newTarget(w, w.deployment, second), w.target
	belongs.DetachedAt, belongs.DetachedWhy = time.Time{}, ""
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Agents().Create(ctx, second); err != nil {
			return err
		}
		return tx.Targets().Create(ctx, belongs)
	})
	list := func(f store.DetachedFilter) []fleet.Target {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Target, error) {
			return tx.Targets().Detached(ctx, w.tenant.ID, f)
		})
	}
	only := []fleet.Target{getTarget(t, s, w)}
	same(t, "all", list(store.DetachedFilter{}), only)
	same(t, "of the deployment", list(store.DetachedFilter{Deployment: w.deployment.Name}), only)
	same(t, "of the agent", list(store.DetachedFilter{Agent: w.agent.Name}), only)
	for _, none := range []store.DetachedFilter{
		{Deployment: "nope"}, {Agent: second.Name}, {Page: store.Page{After: w.deployment.Name, AfterID: string(left.ID)}},
	} {
		if got := list(none); len(got) != 0 {
			t.Errorf("%+v finds %d targets, want none", none, len(got))
		}
	}
}
