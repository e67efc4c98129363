package storetest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// logCalls are the calls about changes, events, and audit.
var logCalls = []call{
	{"Operations.Create", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		o := newOperation(w)
		o.TenantID = tenant
		return nil, tx.Operations().Create(ctx, o)
	}},
	{"Operations.Get", false, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Operations().Get(ctx, tenant, w.operation.ID)
	}},
	{"Operations.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Operations().List(ctx, tenant, store.OperationFilter{})
	}},
	{"Operations.SetState", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Operations().SetState(ctx, tenant, w.operation.ID, fleet.OperationFailed, "broken", at(50))
	}},
	{"Operations.OfResource", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return tx.Operations().OfResource(ctx, tenant, w.operation.ResourceID, 10)
	}},
	{"Operations.TrimAllTenants", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Operations().TrimAllTenants(ctx, at(0))
	}},
	{"Audit.Append", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		e := w.audit
		e.TenantID = tenant
		return nil, tx.Audit().Append(ctx, e)
	}},
	{"Audit.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Audit().List(ctx, tenant, store.AuditFilter{})
	}},
	{"Audit.ListAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Audit().ListAllTenants(ctx, store.AuditFilter{})
	}},
	{"Audit.TrimAllTenants", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Audit().TrimAllTenants(ctx, at(0))
	}},
	{"Events.Append", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		e := w.event
		e.TenantID = tenant
		return nil, tx.Events().Append(ctx, e)
	}},
	{"Events.List", false, empty, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Events().List(ctx, tenant, store.EventFilter{})
	}},
	{"Events.Trim", true, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Events().Trim(ctx, tenant, 0)
	}},
	{"Changes.AfterAllTenants", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().AfterAllTenants(ctx, 0, 10)
	}},
	{"Changes.WakeRepository", true, notFound, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error) {
		return nil, tx.Changes().WakeRepository(ctx, tenant, w.repo.ID, store.Wake{Reason: store.WakePush, Ref: "refs/heads/main"})
	}},
	{"Changes.After", false, own, func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().After(ctx, tenant, 0, 10)
	}},
	{"Changes.Last", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().Last(ctx)
	}},
	{"Changes.First", false, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Changes().First(ctx)
	}},
	{"Changes.Trim", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Changes().Trim(ctx, 100)
	}},
	{"Replies.Claim", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		kept, _, err := tx.Replies().Claim(ctx, store.Reply{Scope: "s", Key: "new", At: at(50)})
		return kept, err
	}},
	{"Replies.Complete", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, w *world) (any, error) {
		return nil, tx.Replies().Complete(ctx, store.Reply{Scope: w.tenant.Name, Key: "k", Status: 201})
	}},
	{"Replies.Release", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return nil, tx.Replies().Release(ctx, "s", "new")
	}},
	{"Replies.Trim", true, global, func(ctx context.Context, tx store.Tx, _ fleet.TenantID, _ *world) (any, error) {
		return tx.Replies().Trim(ctx, at(0))
	}},
}
