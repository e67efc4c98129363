package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Rotation over the connection of the agent:
//
//	RotateAgentToken ─▶ Waiting ─▶ MintAgentToken ─▶ InProgress ─▶ TokenRotated ─▶ Completed
//	                                     ▲    │
//	                                     └────┘ a connection broke: generated again, the previous one revoked
//
// The request is stored; the secret exists only while the gateway sends it to the agent, and is never stored.
// The old token is valid until the agent has connected with the new one.

// ActionRotate is the action of an operation that waits for an agent to use a new token.
const ActionRotate = "agent.rotate-token"

// RotateAgentToken requests the replacement of the token of an agent over its own connection. The operation
// completes when the agent has connected with the new token and the old one is revoked. A running rotation is
// returned.
func (s *Service) RotateAgentToken(ctx context.Context, p auth.Principal, tenant, agent string) (fleet.Operation, error) {
	var out fleet.Operation
	err := s.store.Update(ctx, func(tx store.Tx) error {
		a, err := administrableAgent(ctx, tx, p, tenant, agent)
		if err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, agentResource(a), "given a token"); err != nil {
			return err
		}
		open, err := rotationsOf(ctx, tx, a)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			out = open[0]
			return nil
		}
		valid, err := validTokens(ctx, tx, a)
		if err != nil {
			return err
		}
		if len(valid) != 1 {
			return fleet.Conflict("agent %q has %d valid tokens, but a rotation requires exactly one: %s", agent, len(valid), rotationAdvice(len(valid)))
		}
		if out, err = s.openOperation(ctx, tx, p, fleet.Operation{
			Action: ActionRotate, Kind: "agent", Name: a.Name, ResourceID: string(a.ID), TenantID: a.TenantID,
		}); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, agentEvent(ActionRotate, a, ""))
	})
	return out, err
}

func rotationAdvice(valid int) string {
	if valid == 0 {
		return "create a token and give it to the agent"
	}
	return "revoke the unused one first"
}

// rotationsOf returns the running rotation of an agent, if any.
func rotationsOf(ctx context.Context, tx store.Tx, a fleet.Agent) ([]fleet.Operation, error) {
	// At most one is open, and it is the newest.
	recent, err := tx.Operations().OfResource(ctx, a.TenantID, string(a.ID), 1)
	return slices.DeleteFunc(recent, func(o fleet.Operation) bool { return o.Action != ActionRotate || o.State.Done() }), err
}

// mintedBy marks the tokens of a rotation.
func mintedBy(op fleet.OperationID) string { return "rotation " + string(op) }

// MintAgentToken generates the new token of a rotation, which the gateway sends to the agent. A previous token
// of the same rotation is revoked: its agent has connected with the old one. An operation that is not an open
// rotation of this agent is a ConflictError.
func (s *Service) MintAgentToken(ctx context.Context, agent fleet.Agent, op fleet.OperationID) (string, fleet.TokenID, error) {
	secret := auth.NewToken(auth.AgentTokenPrefix)
	var id fleet.TokenID
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := openRotation(ctx, tx, agent, op); err != nil {
			return err
		}
		valid, err := validTokens(ctx, tx, agent)
		if err != nil {
			return err
		}
		for _, t := range valid {
			if t.CreatedBy != mintedBy(op) {
				continue
			}
			if err := tx.Tokens().RevokeAgentToken(ctx, agent.TenantID, t.ID, s.cfg.Now()); err != nil {
				return err
			}
		}
		t, err := s.addAgentToken(ctx, tx, agent, secret, mintedBy(op))
		if err != nil {
			return err
		}
		id = t.ID
		if err := tx.Operations().SetState(ctx, agent.TenantID, op, fleet.OperationInProgress, "the new token is on its way to the agent", s.cfg.Now()); err != nil {
			return err
		}
		return s.audit(ctx, tx, gatewayPrincipal(), agentTokenEvent("agent-token.create", agent, id))
	})
	if err != nil {
		return "", "", err
	}
	return secret, id, nil
}

func openRotation(ctx context.Context, tx store.Tx, a fleet.Agent, op fleet.OperationID) error {
	open, err := rotationsOf(ctx, tx, a)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(open, func(o fleet.Operation) bool { return o.ID == op }) {
		return fleet.Conflict("operation %s is not an open rotation of agent %q", op, a.Name)
	}
	return nil
}

// TokenRotated records that an agent has connected with a token. If that is the new token of a running
// rotation, every other token of the agent is revoked and the rotation is complete; otherwise nothing changes.
func (s *Service) TokenRotated(ctx context.Context, agent fleet.Agent, newToken fleet.TokenID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		valid, err := validTokens(ctx, tx, agent)
		if err != nil {
			return err
		}
		open, err := rotationsOf(ctx, tx, agent)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(valid, func(t fleet.AgentToken) bool { return t.ID == newToken })
		if i < 0 {
			return nil
		}
		for _, op := range open {
			if valid[i].CreatedBy == mintedBy(op.ID) {
				return s.completeRotation(ctx, tx, agent, op.ID, newToken, valid)
			}
		}
		return nil
	})
}

func (s *Service) completeRotation(
	ctx context.Context, tx store.Tx, a fleet.Agent, op fleet.OperationID, kept fleet.TokenID, valid []fleet.AgentToken,
) error {
	now := s.cfg.Now()
	for _, t := range valid {
		if t.ID == kept {
			continue
		}
		if err := tx.Tokens().RevokeAgentToken(ctx, a.TenantID, t.ID, now); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, gatewayPrincipal(), agentTokenEvent("agent-token.revoke", a, t.ID)); err != nil {
			return err
		}
	}
	if err := tx.Operations().SetState(ctx, a.TenantID, op, fleet.OperationCompleted, "the agent uses the new token", now); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: a.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonTokenRotated, Agent: a.Name,
		Message: "the agent uses its new token, and the old one is revoked",
	})
}

// TokenRotationFailed records that an agent could not store its new token, which is revoked; the old one stays
// valid.
func (s *Service) TokenRotationFailed(ctx context.Context, agent fleet.Agent, op fleet.OperationID, message string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		if err := openRotation(ctx, tx, agent, op); err != nil {
			return err
		}
		valid, err := validTokens(ctx, tx, agent)
		if err != nil {
			return err
		}
		for _, t := range valid {
			if t.CreatedBy != mintedBy(op) {
				continue
			}
			if err := tx.Tokens().RevokeAgentToken(ctx, agent.TenantID, t.ID, s.cfg.Now()); err != nil {
				return err
			}
			if err := s.audit(ctx, tx, gatewayPrincipal(), agentTokenEvent("agent-token.revoke", agent, t.ID)); err != nil {
				return err
			}
		}
		if err := tx.Operations().SetState(ctx, agent.TenantID, op, fleet.OperationFailed, message, s.cfg.Now()); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: agent.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonTokenRotationFailed, Agent: agent.Name,
			Message: fmt.Sprintf("the agent keeps its old token: %s", message),
		})
	})
}

// gatewayPrincipal is the server as the actor for reports of an agent.
func gatewayPrincipal() auth.Principal {
	p := auth.System()
	p.Component = "agent"
	return p
}
