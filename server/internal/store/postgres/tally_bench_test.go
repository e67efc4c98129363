package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
	"github.com/kedge-dev/kedge/server/internal/store/storetest"
)

// BenchmarkTally counts the targets of one deployment with very many agents, and of a page of deployments with
// few.
func BenchmarkTally(b *testing.B) {
	const agents = 10_000
	d := pg.Database(b)
	s := pgtest.Open(b, d)
	w := storetest.NewWide(b, s, 1000)
	crowd := w.Crowd(b, s, agents)
	conn, err := pgx.Connect(b.Context(), d.Admin)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if _, err := conn.Exec(b.Context(), "ANALYZE"); err != nil {
		b.Fatal(err)
	}
	var page []fleet.DeploymentID
	err = s.View(b.Context(), func(tx store.Tx) error {
		first, err := tx.Deployments().List(b.Context(), w.Tenant, store.DeploymentFilter{Page: store.Page{After: "team", Limit: 100}})
		for _, d := range first {
			page = append(page, d.ID)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, ids := range map[string][]fleet.DeploymentID{"one of many": {crowd}, "a page of few": page} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				err := s.View(b.Context(), func(tx store.Tx) error {
					_, err := tx.Targets().Tally(b.Context(), w.Tenant, ids)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
