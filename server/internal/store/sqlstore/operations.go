package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type operations struct{ tx *Tx }

func (s operations) recordOperation(tenant fleet.TenantID, id fleet.OperationID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeOperation, ID: string(id)})
}

func (s operations) Create(ctx context.Context, o fleet.Operation) error {
	err := s.tx.of(o.TenantID).insert(ctx, `INSERT INTO operations (tenant_id, id, action, kind, name, resource_id, state, message,
			created_by, created_at, updated_at, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`,
		o.TenantID, o.ID, o.Action, o.Kind, o.Name, o.ResourceID, o.State, o.Message,
		o.By, micros(o.CreatedAt), micros(o.UpdatedAt), micros(o.FinishedAt))
	if err != nil {
		return fmt.Errorf("creating operation %q: %w", o.ID, err)
	}
	return s.recordOperation(o.TenantID, o.ID)
}

const operationColumns = `SELECT id, tenant_id, action, kind, name, resource_id, state, message, created_by,
	created_at, updated_at, finished_at FROM operations `

func (s operations) Get(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID) (fleet.Operation, error) {
	o, err := only(s.list(ctx, tenant, operationColumns+`WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return fleet.Operation{}, fmt.Errorf("reading operation %q: %w", id, err)
	}
	return o, nil
}

// List omits conditions that are not requested, so that an index can serve each combination.
func (s operations) List(ctx context.Context, tenant fleet.TenantID, f store.OperationFilter) ([]fleet.Operation, error) {
	var a args
	query := operationColumns + `WHERE tenant_id = ` + a.add(tenant)
	if f.Kind != "" {
		query += ` AND kind = ` + a.add(f.Kind)
	}
	if f.Name != "" {
		query += ` AND name = ` + a.add(f.Name)
	}
	if f.State != "" {
		query += ` AND state = ` + a.add(f.State)
	}
	if f.Before != "" {
		query += ` AND (created_at, id) < (SELECT o.created_at, o.id FROM operations o WHERE o.tenant_id = ` + a.add(tenant) +
			` AND o.id = ` + a.add(f.Before) + `)`
	}
	out, err := s.list(ctx, tenant, query+` ORDER BY created_at DESC, id DESC LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	return out, nil
}

func (s operations) OfResource(ctx context.Context, tenant fleet.TenantID, resource string, limit int) ([]fleet.Operation, error) {
	out, err := s.list(ctx, tenant, operationColumns+`WHERE tenant_id = $1 AND resource_id = $2
		ORDER BY created_at DESC, id DESC LIMIT $3`, tenant, resource, limitOf(limit))
	if err != nil {
		return nil, fmt.Errorf("listing operations of %q: %w", resource, err)
	}
	return out, nil
}

func (s operations) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.Operation, error) {
	var out []fleet.Operation
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var o fleet.Operation
		err := row.Scan(&o.ID, &o.TenantID, &o.Action, &o.Kind, &o.Name, &o.ResourceID, &o.State, &o.Message, &o.By,
			timeInto(&o.CreatedAt), timeInto(&o.UpdatedAt), timeInto(&o.FinishedAt))
		out = append(out, o)
		return err
	}, query, args...)
	return out, err
}

func (s operations) SetState(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID, state fleet.OperationState, message string, at time.Time) error {
	changed, err := s.setState(ctx, tenant, id, state, message, at)
	if err != nil {
		return fmt.Errorf("moving operation %q to %s: %w", id, state, err)
	}
	if !changed {
		return nil
	}
	return s.recordOperation(tenant, id)
}

func (s operations) setState(ctx context.Context, tenant fleet.TenantID, id fleet.OperationID, state fleet.OperationState, message string, at time.Time) (bool, error) {
	var finished any
	if state.Done() {
		finished = micros(at)
	}
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE operations SET state = $3, message = $4, updated_at = $5, finished_at = $6
		WHERE tenant_id = $1 AND id = $2 AND state NOT IN ('Completed', 'Failed') AND (state <> $3 OR message <> $4)`,
		tenant, id, state, message, micros(at), finished)
	if err != nil || n > 0 {
		return n > 0, err
	}
	var one int
	err = s.tx.of(tenant).get(ctx, []any{&one}, `SELECT 1 FROM operations WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return false, err
}

func (s operations) TrimAllTenants(ctx context.Context, before time.Time) (int, error) {
	n, err := s.tx.aside().exec(ctx, `DELETE FROM operations WHERE finished_at < $1`, micros(before))
	if err != nil {
		return 0, fmt.Errorf("trimming operations: %w", err)
	}
	return int(n), nil
}
