package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// A token is replaced over the agent's own connection:
//
//	rotation requested ─▶ NewToken ─▶ TokenStored ─▶ Goodbye ─▶ the agent reconnects with the new token
//	                                      └─ error, or no answer ─▶ the rotation failed
//
// Both tokens are valid until the agent has reconnected, so that the agent keeps a valid token if any step fails.

// rotationTimeout limits how long an agent may take to confirm that it stored a token. An agent of an older
// version does not know the message and never answers.
const rotationTimeout = time.Minute

// rotations finds the agents of rotations in the change feed. The feed does not contain what an operation is
// about, and its reader must not wait for a query.
type rotations struct {
	gateway *Gateway
	wake    wait.Signal

	mu      sync.Mutex
	pending map[fleet.OperationID]fleet.TenantID
}

func newRotations(g *Gateway) *rotations {
	return &rotations{gateway: g, wake: wait.NewSignal(), pending: map[fleet.OperationID]fleet.TenantID{}}
}

func (r *rotations) add(tenant fleet.TenantID, op fleet.OperationID) {
	r.mu.Lock()
	r.pending[op] = tenant
	r.mu.Unlock()
	r.wake.Set()
}

// run processes added operations until ctx ends. If an operation cannot be read, its agent finds the rotation
// when it connects again.
func (r *rotations) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		r.mu.Lock()
		pending := r.pending
		r.pending = map[fleet.OperationID]fleet.TenantID{}
		r.mu.Unlock()
		for op, tenant := range pending {
			agent, err := r.gateway.control.RotationOf(ctx, tenant, op)
			if err != nil && ctx.Err() == nil {
				r.gateway.log.Warn("reading an operation failed", "operation", string(op), obs.Err(err))
			}
			if agent != "" {
				r.gateway.sessions.forEachOf(agent, func(s *session) { s.schedule(func(w *pendingWork) { w.rotate = true }) })
			}
		}
	}
}

// rotation is a new token that the agent received and has not confirmed.
type rotation struct {
	operation fleet.OperationID
	end       func()
	timeout   *time.Timer
}

// rotate sends the agent a new token if a rotation is open. Only the stream's handler calls it.
func (s *session) rotate(ctx context.Context) error {
	if s.rotation != nil {
		return nil
	}
	op, err := s.gateway.control.OpenRotation(ctx, s.agent, s.tokenID)
	if err != nil {
		return retryable("reading the open rotation: %w", err)
	}
	if op == "" {
		return nil
	}
	token, end, err := s.gateway.control.BeginRotation(ctx, s.agent, op)
	if err != nil {
		return retryable("creating a new token: %w", err)
	}
	if token == "" { // another replica of the agent handles it
		return nil
	}
	s.rotation = &rotation{operation: op, end: end, timeout: time.AfterFunc(rotationTimeout, func() {
		s.scheduleTokenStored(wire.TokenStored{Operation: op, Problem: "the agent did not confirm the token within " + rotationTimeout.String() + ": check that its version supports token rotation"})
	})}
	s.log().Info("sending a new token to the agent", "operation", string(op))
	return s.send("new_token", &agentv1.ConnectResponse{
		Frame: &agentv1.ConnectResponse_NewToken{NewToken: wire.NewToken{Operation: op, Token: token}.Proto()},
	})
}

// scheduleTokenStored passes the agent's answer to the stream's handler.
func (s *session) scheduleTokenStored(a wire.TokenStored) {
	s.schedule(func(w *pendingWork) { w.tokenStored = &a })
}

// handleTokenStored processes the agent's answer. An agent that stored the token reconnects with it.
func (s *session) handleTokenStored(ctx context.Context, a wire.TokenStored) error {
	if s.rotation == nil || s.rotation.operation != a.Operation {
		return nil
	}
	if a.Problem == "" {
		s.rotation.timeout.Stop()
		s.scheduleGoodbye("the agent has a new token", 0)
		return nil
	}
	if err := s.gateway.control.TokenRotationFailed(ctx, s.agent, a.Operation, a.Problem); err != nil {
		return retryable("recording a failed rotation: %w", err)
	}
	s.log().Warn("the agent did not store its new token", "operation", string(a.Operation), obs.KeyReason, a.Problem)
	s.endRotation()
	return nil
}

// endRotation allows another session to handle the rotation. Only the stream's handler calls it.
func (s *session) endRotation() {
	if s.rotation == nil {
		return
	}
	s.rotation.timeout.Stop()
	s.rotation.end()
	s.rotation = nil
}
