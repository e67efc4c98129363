package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Operations stores tracked asynchronous work. Create and SetState record ChangeOperation.
type Operations interface {
	Create(ctx context.Context, o fleet.Operation) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID) (fleet.Operation, error)
	// List returns operations, newest first, in pages by the id of the last one.
	List(ctx context.Context, tenant fleet.TenantID, f OperationFilter) ([]fleet.Operation, error)
	// SetState changes the state of an operation that is not done.
	SetState(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID, state fleet.OperationState, message string, at time.Time) error
	// OfResource returns the newest operations of a resource, newest first, at most limit.
	OfResource(ctx context.Context, tenant fleet.TenantID, resource string, limit int) ([]fleet.Operation, error)
	// TrimAllTenants removes operations that were done before a time.
	TrimAllTenants(ctx context.Context, before time.Time) (int, error)
}

// OperationFilter limits a listing of operations; zero fields match everything.
type OperationFilter struct {
	Kind, Name string // of the resource
	State      fleet.OperationState
	Before     fleet.OperationID // older than this one; "" starts with the newest
	Limit      int
}

// Audit is the audit log. It is append-only.
type Audit interface {
	Append(ctx context.Context, e fleet.AuditEvent) error
	// List returns entries of a tenant, newest first.
	List(ctx context.Context, tenant fleet.TenantID, f AuditFilter) ([]fleet.AuditEvent, error)
	// ListAllTenants returns entries of all tenants and of the fleet, newest first.
	ListAllTenants(ctx context.Context, f AuditFilter) ([]fleet.AuditEvent, error)
	// TrimAllTenants removes entries that are older than before.
	TrimAllTenants(ctx context.Context, before time.Time) (int, error)
}

// AuditFilter limits a listing of the audit log; zero fields match everything.
type AuditFilter struct {
	Actor, Action, Kind, Name string
	Since, Until              time.Time
	BeforeSeq                 int64 // older than this; 0 starts with the newest
	Limit                     int
}

// EventFilter limits a listing of events; zero fields match everything.
type EventFilter struct {
	Agent, Deployment string
	Reason            fleet.Reason
	Type              fleet.EventType
	// AfterSeq selects newer events, starting with the oldest of them. Without it, the newest are selected: of
	// all, or of those older than BeforeSeq.
	AfterSeq, BeforeSeq int64
	Since               time.Time // not before; zero means any
	Limit               int       // 0 means 100
}

// Events stores events for users.
type Events interface {
	Append(ctx context.Context, e fleet.Event) error
	// List returns matching events, oldest first.
	List(ctx context.Context, tenant fleet.TenantID, f EventFilter) ([]fleet.Event, error)
	// Trim keeps the newest n.
	Trim(ctx context.Context, tenant fleet.TenantID, n int) error
}
