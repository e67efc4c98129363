package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T1 (keyset pages)
var pageTests = map[string]func(*testing.T, store.Store){
	"contain everything once, in order, for every page size": pagesGiveEverythingOnce,
}

// paging reads one page of a listing, as the keys of its rows, with the next page.
type paging func(ctx context.Context, tx store.Tx, page store.Page) (keys []string, next store.Page, err error)

// pagesOf returns a paging of a listing whose rows have a key of two parts.
func pagesOf[T any](list func(context.Context, store.Tx, store.Page) ([]T, error), key func(T) (after, id string)) paging {
	return func(ctx context.Context, tx store.Tx, page store.Page) (keys []string, next store.Page, err error) {
		rows, err := list(ctx, tx, page)
		for _, row := range rows {
			page.After, page.AfterID = key(row)
			keys = append(keys, page.After+"/"+page.AfterID)
		}
		return keys, page, err
	}
}

func pagesGiveEverythingOnce(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	for i := range 5 {
		update(t, s, func(ctx context.Context, tx store.Tx) error { return w.addMore(ctx, tx, i) })
	}
	listings := map[string]paging{
		"members": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.Member, error) {
			return tx.Members().List(ctx, w.tenant.ID, page)
		}, func(m fleet.Member) (string, string) { return string(m.Kind), m.Subject }),
		"agent tokens": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.AgentToken, error) {
			return tx.Tokens().AgentTokens(ctx, w.tenant.ID, w.agent.ID, page)
		}, func(x fleet.AgentToken) (string, string) {
			return strconv.FormatInt(x.CreatedAt.UnixMicro(), 10), string(x.ID)
		}),
		"tokens": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.APIToken, error) {
			return tx.Tokens().APITokens(ctx, w.tenant.ID, page)
		}, func(x fleet.APIToken) (string, string) { return x.Name, string(x.ID) }),
		"tokens of the fleet": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.APIToken, error) {
			return tx.Tokens().APITokens(ctx, "", page)
		}, func(x fleet.APIToken) (string, string) { return x.Name, string(x.ID) }),
		"grants given": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.Grant, error) {
			return tx.Grants().Given(ctx, w.tenant.ID, page)
		}, func(g fleet.Grant) (string, string) { return g.Environment, g.GranteeName }),
		"grants received": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.Grant, error) {
			return tx.Grants().To(ctx, w.tenant.ID, page)
		}, func(g fleet.Grant) (string, string) { return g.Environment, g.OwnerName }),
		"revisions": pagesOf(func(ctx context.Context, tx store.Tx, page store.Page) ([]fleet.Revision, error) {
			return tx.Revisions().List(ctx, w.tenant.ID, w.deployment.ID, page)
		}, func(r fleet.Revision) (string, string) { return strconv.FormatInt(r.Seq, 10), "" }),
	}
	for name, list := range listings {
		want := readPages(t, s, list, store.Whole())
		if len(want) < 5 {
			t.Errorf("there are %d %s, which is too few for a test", len(want), name)
		}
		for _, limit := range []int{1, 2, 4} {
			same(t, fmt.Sprintf("%s in pages of %d", name, limit), readPages(t, s, list, store.Page{Limit: limit}), want)
		}
	}
}

// readPages reads a listing to its end.
func readPages(t *testing.T, s store.Store, list paging, page store.Page) (all []string) {
	t.Helper()
	limit := page.Limit
	for {
		var keys []string
		err := s.View(t.Context(), func(tx store.Tx) (err error) {
			keys, page, err = list(t.Context(), tx, page)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, keys...); len(keys) < limit || len(all) > 100 {
			return all
		}
	}
}

// addMore adds one of everything that is listed, some with the same name or time.
func (w *world) addMore(ctx context.Context, tx store.Tx, i int) error {
	id, name := w.tenant.ID, fmt.Sprint("more-", i/2)
	other := fleet.Tenant{ID: fleet.NewTenantID(), Name: fmt.Sprint("other-", i), CreatedAt: at(i)}
	mine := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: id, Name: fmt.Sprint("mine-", i), CreatedAt: at(i)}
	theirs := fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: other.ID, Name: name, CreatedAt: at(i)}
	kind := []fleet.MemberKind{fleet.MemberPerson, fleet.MemberGroup}[i%2]
	token := func(tenant fleet.TenantID, role fleet.Role) fleet.APIToken {
		return fleet.APIToken{ID: fleet.NewTokenID(), TenantID: tenant, Name: name, Role: role, Hash: randomHash(), CreatedAt: at(i)}
	}
	_, appended := tx.Revisions().Append(ctx, id, w.deployment.ID, fleet.Revision{Commit: name, RenderedAt: at(i), Bundles: someBundles(w, i)}, 20)
	return errors.Join(
		tx.Tenants().Create(ctx, other), tx.Environments().Create(ctx, mine), tx.Environments().Create(ctx, theirs),
		tx.Grants().Create(ctx, newGrant(mine, other.ID)), tx.Grants().Create(ctx, newGrant(theirs, id)),
		tx.Members().Put(ctx, fleet.Member{TenantID: id, Kind: kind, Subject: fmt.Sprint("x/", i), Role: fleet.RoleViewer, CreatedAt: at(i)}),
		tx.Tokens().CreateAgentToken(ctx, fleet.AgentToken{
			ID: fleet.NewTokenID(), TenantID: id, AgentID: w.agent.ID, Hash: randomHash(), CreatedAt: at(i / 2), CreatedBy: "test",
		}),
		tx.Tokens().CreateAPIToken(ctx, token(id, fleet.RoleViewer)), tx.Tokens().CreateAPIToken(ctx, token("", fleet.RoleFleetAdmin)), appended,
	)
}

// someBundles returns new bundles each time: a revision with the same bundles as the newest is not another.
func someBundles(w *world, i int) map[string]string {
	return map[string]string{fmt.Sprint("variant-", i): w.bundle.Digest}
}

// randomHash looks like the hash of a token.
func randomHash() []byte { return fmt.Appendf(nil, "%-32.32s", fleet.NewTokenID()+fleet.NewTokenID()) }
