package control

import (
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// RotationOf returns the agent of an open rotation, "" if the operation is another one or done.
func (s *Service) RotationOf(ctx context.Context, tenant fleet.TenantID, op fleet.OperationID) (fleet.AgentID, error) {
	var agent fleet.AgentID
	err := s.store.View(ctx, func(tx store.Tx) error {
		o, err := tx.Operations().Get(ctx, tenant, op)
		if err == nil && o.Action == ActionRotate && !o.State.Done() {
			agent = fleet.AgentID(o.ResourceID)
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return agent, err
}

// OpenRotation returns the open rotation of an agent, or "". If the agent has connected with the new token, it
// completes the rotation.
func (s *Service) OpenRotation(ctx context.Context, agent fleet.Agent, with fleet.TokenID) (fleet.OperationID, error) {
	var op fleet.OperationID
	var taken bool
	err := s.store.View(ctx, func(tx store.Tx) error {
		open, err := rotationsOf(ctx, tx, agent)
		if err != nil || len(open) == 0 {
			return err
		}
		op = open[0].ID
		valid, err := validTokens(ctx, tx, agent)
		for _, t := range valid {
			taken = taken || (t.ID == with && t.CreatedBy == mintedBy(op))
		}
		return err
	})
	if err != nil || !taken {
		return op, err
	}
	return "", s.TokenRotated(ctx, agent, with)
}

// BeginRotation generates the new token of a rotation, for one session of the agent at a time across all
// replicas: two would each revoke the token of the other. The token is "" if another session is active, or if
// the rotation is done. Call end when the agent has responded or disconnected.
func (s *Service) BeginRotation(ctx context.Context, agent fleet.Agent, op fleet.OperationID) (token string, end func(), err error) {
	lock, ok, err := s.store.Lock(ctx, "rotation/"+string(agent.ID))
	if err != nil || !ok {
		return "", nil, err
	}
	token, _, err = s.MintAgentToken(ctx, agent, op)
	if err != nil {
		lock.Release()
		if errors.As(err, new(*ConflictError)) {
			return "", nil, nil
		}
		return "", nil, err
	}
	return token, lock.Release, nil
}
