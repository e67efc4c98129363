package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var auditTests = map[string]func(*testing.T, store.Store){
	"is listed newest first, with filters": auditListing,
	"is trimmed by age":                    auditTrim,
}

// appendAudit adds entries "d0"… of a tenant, or of the fleet.
func appendAudit(t *testing.T, s store.Store, tenant fleet.TenantID, n int) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for i := range n {
			e := fleet.AuditEvent{At: at(i), TenantID: tenant, Actor: "ada", Component: "rest", Action: "agent.create", Kind: "agent", Name: "x",
				Detail: fmt.Sprint("d", i)}
			if i%2 == 1 {
				e.Actor, e.Name = "bob", "y"
			}
			if i%3 == 0 {
				e.Action, e.Kind = "tenant.suspend", "tenant"
			}
			if err := tx.Audit().Append(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func details(entries []fleet.AuditEvent) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Detail)
	}
	return out
}

func listAudit(t *testing.T, s store.Store, tenant fleet.TenantID, f store.AuditFilter) []fleet.AuditEvent {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.AuditEvent, error) {
		return tx.Audit().List(ctx, tenant, f)
	})
}

func listAllAudit(t *testing.T, s store.Store, f store.AuditFilter) []fleet.AuditEvent {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.AuditEvent, error) {
		return tx.Audit().ListAllTenants(ctx, f)
	})
}

func auditListing(t *testing.T, s store.Store) {
	w, b := newWorld(t, s, "a"), newTenant(t, s, "b")
	one := listAudit(t, s, w.tenant.ID, store.AuditFilter{})
	w.audit.Seq = one[0].Seq
	same(t, "one", one, []fleet.AuditEvent{w.audit})
	appendAudit(t, s, "", 2)
	appendAudit(t, s, b, 7)
	all := listAudit(t, s, b, store.AuditFilter{})
	cases := []struct {
		reason string
		filter store.AuditFilter
		want   []string
	}{
		{"everything", store.AuditFilter{}, []string{"d6", "d5", "d4", "d3", "d2", "d1", "d0"}},
		{"the newest two", store.AuditFilter{Limit: 2}, []string{"d6", "d5"}},
		{"older than one", store.AuditFilter{BeforeSeq: all[4].Seq}, []string{"d1", "d0"}},
		{"by somebody", store.AuditFilter{Actor: "bob"}, []string{"d5", "d3", "d1"}},
		{"of an action", store.AuditFilter{Action: "tenant.suspend"}, []string{"d6", "d3", "d0"}},
		{"of a kind", store.AuditFilter{Kind: "agent", Limit: 3}, []string{"d5", "d4", "d2"}},
		{"of a name", store.AuditFilter{Name: "y"}, []string{"d5", "d3", "d1"}},
		{"of one resource", store.AuditFilter{Kind: "agent", Name: "y"}, []string{"d5", "d1"}},
		{"by actor and action", store.AuditFilter{Actor: "bob", Action: "tenant.suspend"}, []string{"d3"}},
		{"since a time", store.AuditFilter{Since: at(5)}, []string{"d6", "d5"}},
		{"until a time", store.AuditFilter{Until: at(2)}, []string{"d1", "d0"}},
		{"within two times", store.AuditFilter{Since: at(2), Until: at(4)}, []string{"d3", "d2"}},
		{"by nobody", store.AuditFilter{Actor: "nobody"}, nil},
	}
	for _, c := range cases {
		same(t, c.reason, details(listAudit(t, s, b, c.filter)), c.want)
	}
	same(t, "of all", len(listAllAudit(t, s, store.AuditFilter{})), 1+2+7)
	same(t, "all tenants, by actor", details(listAllAudit(t, s, store.AuditFilter{Actor: "bob"})), []string{"d5", "d3", "d1", "d1"})
	fleetwide := listAllAudit(t, s, store.AuditFilter{BeforeSeq: all[6].Seq, Limit: 1})
	same(t, "of the fleet", fleetwide[0].TenantID, fleet.TenantID(""))
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Audit().Append(ctx, fleet.AuditEvent{At: at(1), TenantID: "ten-nowhere"})
	})
}

func auditTrim(t *testing.T, s store.Store) {
	a := newTenant(t, s, "a")
	before := last(t, s)
	appendAudit(t, s, a, 5)
	appendAudit(t, s, "", 3)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		n, err := tx.Audit().TrimAllTenants(ctx, at(2))
		same(t, "trimmed", n, 4)
		return err
	})
	same(t, "left", details(listAllAudit(t, s, store.AuditFilter{})), []string{"d2", "d4", "d3", "d2"})
	same(t, "changes", since(t, s, before), nil)
}
