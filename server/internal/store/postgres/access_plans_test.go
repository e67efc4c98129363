package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// TestAccessReadsFewRows decides about the access of a caller in a tenant with the most rules. Every request through a tunnel
// does that.
func TestAccessReadsFewRows(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	of := newEstate(t, s, "acme")
	const others, few = 50, 300
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range fleet.MaxAccessRules {
			r := fleet.AccessRule{
				ID: fleet.NewAccessRuleID(), TenantID: of.tenant, Name: fmt.Sprint("rule-", i), CreatedAt: time.Now(),
				Agents: []fleet.AccessAgent{{ID: of.agent.ID}}, Environments: []fleet.AccessEnvironment{{ID: of.env.ID}},
			}
			for n := range others {
				r.Subjects = append(r.Subjects, fleet.AccessSubject{Kind: fleet.AccessPerson, Name: fmt.Sprint("person-", i, "-", n)})
			}
			if err := tx.AccessRules().Create(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	e := newExplainer(t, s, d)
	decide := func(ctx context.Context, tx store.Tx) error {
		a, err := tx.Agents().Brief(ctx, of.tenant, of.agent.Name)
		if err != nil {
			return err
		}
		who := fleet.AccessSubject{Kind: fleet.AccessPerson, Name: "person-7-3"}
		found, err := tx.AccessRules().Covering(ctx, of.tenant, a.ID, who, []string{"some", "group", "person-8-3"})
		if err == nil && len(found) != 1 {
			t.Errorf("got %v, want one rule", found)
		}
		return err
	}
	// Until the tables are analyzed, PostgreSQL may read every rule and its agent.
	e.check(t, "without statistics", 2*fleet.MaxAccessRules+few, decide)
	e.vacuum(t, "")
	e.check(t, "with statistics", few, decide)
	if e.rows == 0 {
		t.Error("no rows were read: is anything counted?")
	}
}
