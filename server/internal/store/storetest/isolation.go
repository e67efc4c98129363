package storetest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: invariant 7
var isolationTests = map[string]func(*testing.T, store.Store){
	"every method is in the table":                      everyMethodIsTried,
	"no row of a tenant is found or changed by another": tenantsAreIsolated,
	"equal names in two tenants are two things":         equalNames,
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// everyMethodIsTried fails when the contract grows and the table does not.
func everyMethodIsTried(t *testing.T, _ store.Store) {
	known := map[string]call{}
	for _, c := range calls {
		known[c.name] = c
	}
	for name, signature := range methods() {
		c, ok := known[name]
		if !ok {
			t.Errorf("%s is not in the table of calls", name)
			continue
		}
		delete(known, name)
		if c.foreign != global {
			continue
		}
		for i := range signature.NumIn() {
			if signature.In(i) == reflect.TypeFor[fleet.TenantID]() {
				t.Errorf("%s takes a tenant but is tested as a global method", name)
			}
		}
	}
	for name := range known {
		t.Errorf("%s is in the table of calls but not in the contract", name)
	}
}

func tenantsAreIsolated(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	for _, c := range calls {
		if c.foreign == global {
			continue
		}
		// A new tenant for each: without rows of its own, every row that appears is a leak.
		stranger := newTenant(t, s, "stranger-"+strings.ToLower(c.name))
		before := dump(t, s, w)
		var got any
		err := s.Update(t.Context(), func(tx store.Tx) (err error) {
			got, err = c.do(t.Context(), tx, stranger, w)
			return err
		})
		switch c.foreign {
		case notFound:
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s for another tenant: got %v and error %v, want %v", c.name, got, err, store.ErrNotFound)
			}
		case empty:
			if v := reflect.ValueOf(got); err != nil || !(v.IsZero() || v.Len() == 0) {
				t.Errorf("%s for another tenant: got %v and error %v, want nothing", c.name, got, err)
			}
		default:
			if err != nil {
				t.Errorf("%s in another tenant: got error %v, want none", c.name, err)
			}
		}
		same(t, "the tenant after "+c.name+" for another", dump(t, s, w), before)
	}
}

func equalNames(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	before := dump(t, s, b)
	for _, w := range []*world{a, b} {
		same(t, "agent", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Agent, error) {
			return tx.Agents().ByName(ctx, w.tenant.ID, "edge-1")
		}), w.agent)
		same(t, "deployment", read(t, s, func(ctx context.Context, tx store.Tx) (fleet.Deployment, error) {
			return tx.Deployments().ByName(ctx, w.tenant.ID, "shop")
		}), w.deployment)
		same(t, "bundle", getBundle(t, s, w.bundle), w.bundle)
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.Targets().Remove(ctx, a.tenant.ID, a.target.ID),
			tx.Deployments().Remove(ctx, a.tenant.ID, a.deployment.ID),
			tx.Agents().Delete(ctx, a.tenant.ID, a.agent.ID),
		)
	})
	same(t, "the other tenant", dump(t, s, b), before)
}
