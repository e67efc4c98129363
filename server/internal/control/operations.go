package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The actions that are tracked by operations.
const (
	actionSync     = "deployment.sync"
	actionRollback = "deployment.rollback"
)

// openOperation starts to track asynchronous work that p requested. The caller must finish it, even if the
// resource disappears.
func (s *Service) openOperation(ctx context.Context, tx store.Tx, p auth.Principal, o fleet.Operation) (fleet.Operation, error) {
	now := s.cfg.Now()
	o.ID, o.State, o.By = fleet.NewOperationID(), cmp.Or(o.State, fleet.OperationWaiting), p.Name
	o.CreatedAt, o.UpdatedAt = now, now
	return o, tx.Operations().Create(ctx, o)
}

// Operations lists operations, newest first.
func (s *Service) Operations(ctx context.Context, p auth.Principal, tenant string, f store.OperationFilter) ([]fleet.Operation, error) {
	var out []fleet.Operation
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Operations().List(ctx, t.ID, f)
		return err
	})
	return out, err
}

// Operation returns one operation.
func (s *Service) Operation(ctx context.Context, p auth.Principal, tenant string, id fleet.OperationID) (fleet.Operation, error) {
	var out fleet.Operation
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if out, err = tx.Operations().Get(ctx, t.ID, id); err != nil {
			return fmt.Errorf("operation %q: %w", id, err)
		}
		return nil
	})
	return out, err
}

// shownOperations returns the operations to show with their resource: running ones, and the newest one if it
// failed.
func shownOperations(ctx context.Context, tx store.Tx, tenant fleet.TenantID, resource string) ([]fleet.Operation, error) {
	const enough = 10
	operations, err := tx.Operations().OfResource(ctx, tenant, resource, enough)
	if err != nil {
		return nil, err
	}
	var out []fleet.Operation
	failedShown := false
	for i, o := range operations {
		failed := o.State == fleet.OperationFailed && !failedShown
		if !o.State.Done() || (failed && !succeededSince(operations[:i], o.Action)) {
			out = append(out, o)
		}
		failedShown = failedShown || failed
	}
	return out, nil
}

// succeededSince reports whether the same action succeeded after a failure.
func succeededSince(newer []fleet.Operation, action string) bool {
	for _, o := range newer {
		if o.Action == action && o.State == fleet.OperationCompleted {
			return true
		}
	}
	return false
}
