package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var eventTests = map[string]func(*testing.T, store.Store){
	"are listed newest last, with filters": eventListing,
	"are trimmed per tenant":               eventTrim,
}

// appendEvents adds n events "e0"…; the even ones are about agent x, those of three about deployment y.
func appendEvents(t *testing.T, s store.Store, tenant fleet.TenantID, n int) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range n {
			e := fleet.Event{At: at(i), TenantID: tenant, Type: fleet.EventWarning, Reason: "Test", Object: "Pod a/b", Message: fmt.Sprintf("e%d", i)}
			if i%2 == 0 {
				e.Agent = "x"
			}
			if i%3 == 0 {
				e.Deployment = "y"
			}
			if err := tx.Events().Append(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func listEvents(t *testing.T, s store.Store, tenant fleet.TenantID, f store.EventFilter) []fleet.Event {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Event, error) { return tx.Events().List(ctx, tenant, f) })
}

func messages(events []fleet.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Message)
	}
	return out
}

func newTenant(t *testing.T, s store.Store, name string) fleet.TenantID {
	t.Helper()
	tenant := fleet.Tenant{ID: fleet.NewTenantID(), Name: name, CreatedAt: at(0)}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Tenants().Create(ctx, tenant) })
	return tenant.ID
}

func eventListing(t *testing.T, s store.Store) {
	a, b := newTenant(t, s, "a"), newTenant(t, s, "b")
	appendEvents(t, s, b, 3)
	appendEvents(t, s, a, 8)
	all := listEvents(t, s, a, store.EventFilter{})
	same(t, "one", all[0], fleet.Event{Seq: all[0].Seq, At: at(0), TenantID: a, Type: fleet.EventWarning, Reason: "Test",
		Agent: "x", Deployment: "y", Object: "Pod a/b", Message: "e0"})
	cases := []struct {
		reason string
		filter store.EventFilter
		want   []string
	}{
		{"everything", store.EventFilter{}, []string{"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"}},
		{"the newest two", store.EventFilter{Limit: 2}, []string{"e6", "e7"}},
		{"of an agent", store.EventFilter{Agent: "x"}, []string{"e0", "e2", "e4", "e6"}},
		{"of a deployment", store.EventFilter{Deployment: "y"}, []string{"e0", "e3", "e6"}},
		{"of both", store.EventFilter{Agent: "x", Deployment: "y"}, []string{"e0", "e6"}},
		{"newer than one", store.EventFilter{AfterSeq: all[5].Seq}, []string{"e6", "e7"}},
		{"of an agent, those that follow, at most one", store.EventFilter{Agent: "x", AfterSeq: all[1].Seq, Limit: 1}, []string{"e2"}},
		{"those that follow, at most two", store.EventFilter{AfterSeq: all[2].Seq, Limit: 2}, []string{"e3", "e4"}},
		{"older than one, at most two", store.EventFilter{BeforeSeq: all[5].Seq, Limit: 2}, []string{"e3", "e4"}},
		{"of a deployment, older than one", store.EventFilter{Deployment: "y", BeforeSeq: all[6].Seq}, []string{"e0", "e3"}},
		{"older than the first", store.EventFilter{BeforeSeq: all[0].Seq}, nil},
		{"not before a time", store.EventFilter{Since: at(6)}, []string{"e6", "e7"}},
		{"of an agent, not before a time", store.EventFilter{Agent: "x", Since: at(3)}, []string{"e4", "e6"}},
		{"with a reason", store.EventFilter{Reason: "Test", Limit: 1}, []string{"e7"}},
		{"with another reason", store.EventFilter{Reason: "Other"}, nil},
		{"with another type", store.EventFilter{Type: fleet.EventNormal}, nil},
		{"of nobody", store.EventFilter{Agent: "nobody"}, nil},
	}
	for _, c := range cases {
		same(t, c.reason, messages(listEvents(t, s, a, c.filter)), c.want)
	}
	before := last(t, s)
	appendEvents(t, s, a, 1)
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: a, Kind: store.ChangeEvent}})
}

func eventTrim(t *testing.T, s store.Store) {
	a, b := newTenant(t, s, "a"), newTenant(t, s, "b")
	appendEvents(t, s, a, 5)
	appendEvents(t, s, b, 2)
	trim := func(n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Events().Trim(ctx, a, n) })
	}
	newest := listEvents(t, s, a, store.EventFilter{Limit: 1})[0].Seq
	trim(3)
	same(t, "a", messages(listEvents(t, s, a, store.EventFilter{})), []string{"e2", "e3", "e4"})
	same(t, "b", messages(listEvents(t, s, b, store.EventFilter{})), []string{"e0", "e1"})
	trim(0)
	same(t, "a", listEvents(t, s, a, store.EventFilter{}), nil)
	same(t, "b", messages(listEvents(t, s, b, store.EventFilter{})), []string{"e0", "e1"})
	appendEvents(t, s, a, 1)
	if got := listEvents(t, s, a, store.EventFilter{})[0].Seq; got <= newest {
		t.Errorf("sequence number after a trim: got %d, want more than %d", got, newest)
	}
}
