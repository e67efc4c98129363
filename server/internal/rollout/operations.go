package rollout

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// finishOperation ends an operation: completed if problem is "", otherwise failed. An operation that is done or
// deleted does not change.
func (s *Planner) finishOperation(ctx context.Context, tx store.Tx, tenant fleet.TenantID, id fleet.OperationID, problem string) error {
	if id == "" {
		return nil
	}
	state := fleet.OperationCompleted
	if problem != "" {
		state = fleet.OperationFailed
	}
	err := tx.Operations().SetState(ctx, tenant, id, state, problem, s.cfg.Now())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// FinishOperationsOf ends every open operation of a resource with an action.
func (s *Planner) FinishOperationsOf(ctx context.Context, tx store.Tx, tenant fleet.TenantID, resource, action, problem string) error {
	const enough = 50
	operations, err := tx.Operations().OfResource(ctx, tenant, resource, enough)
	if err != nil {
		return err
	}
	for _, o := range operations {
		if o.Action != action || o.State.Done() {
			continue
		}
		if err := s.finishOperation(ctx, tx, tenant, o.ID, problem); err != nil {
			return err
		}
	}
	return nil
}

// ActionDelete is the action of the operation that deletes a deployment.
const ActionDelete = "deployment.delete"
