package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wake"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// A token is replaced over the agent's own connection:
//
//	rotation asked for ─▶ NewToken ─▶ TokenStored ─▶ Goodbye ─▶ the agent comes back with the new token
//	                                      └─ problem, or no answer ─▶ the rotation has failed
//
// Both tokens are valid until the agent has come back, so that nothing is lost wherever it breaks off.

// rotationPatience is how long an agent may take to say whether it has kept a token. One that is too
// old to know what a new token is says nothing.
const rotationPatience = time.Minute

// rotations finds out which agents the operations are for that are told of in the feed. The feed does
// not say what an operation is about, and must not wait while somebody asks.
type rotations struct {
	gateway *Gateway
	wake    wake.Signal

	mu      sync.Mutex
	pending map[fleet.OperationID]fleet.TenantID
}

func newRotations(g *Gateway) *rotations {
	return &rotations{gateway: g, wake: wake.New(), pending: map[fleet.OperationID]fleet.TenantID{}}
}

func (r *rotations) look(tenant fleet.TenantID, op fleet.OperationID) {
	r.mu.Lock()
	r.pending[op] = tenant
	r.mu.Unlock()
	r.wake.Set()
}

// run looks until ctx ends. One that cannot be looked at is found when its agent connects again.
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
				r.gateway.log.Warn("reading an operation", "operation", string(op), obs.Err(err))
			}
			if agent != "" {
				r.gateway.ofAgent(agent, func(s *session) { s.mark(func(t *todo) { t.rotate = true }) })
			}
		}
	}
}

// rotation is a new token that an agent was sent and has not answered for.
type rotation struct {
	operation fleet.OperationID
	end       func()
	late      *time.Timer
}

// rotate sends the agent a new token if one was asked for. Only the stream's handler calls it.
func (s *session) rotate(ctx context.Context) error {
	if s.rotation != nil {
		return nil
	}
	op, err := s.gateway.control.OpenRotation(ctx, s.agent, s.tokenID)
	if err != nil {
		return later("looking for a rotation: %w", err)
	}
	if op == "" {
		return nil
	}
	token, end, err := s.gateway.control.BeginRotation(ctx, s.agent, op)
	if err != nil {
		return later("making a new token: %w", err)
	}
	if token == "" { // another replica of the agent is at it
		return nil
	}
	s.rotation = &rotation{operation: op, end: end, late: time.AfterFunc(rotationPatience, func() {
		s.answer(wire.TokenStored{Operation: op, Problem: "the agent did not say within " + rotationPatience.String() + " whether it has kept the token: is it of an older version?"})
	})}
	s.log().Info("a new token is sent to the agent", "operation", string(op))
	return s.send("new_token", &agentv1.ConnectResponse{
		Frame: &agentv1.ConnectResponse_NewToken{NewToken: wire.NewToken{Operation: op, Token: token}.Proto()},
	})
}

// answer hands the answer to a new token to the stream's handler.
func (s *session) answer(a wire.TokenStored) { s.mark(func(t *todo) { t.answer = &a }) }

// settleRotation takes the agent's answer. One that kept the token is to come back with it.
func (s *session) settleRotation(ctx context.Context, a wire.TokenStored) error {
	if s.rotation == nil || s.rotation.operation != a.Operation {
		return nil
	}
	if a.Problem == "" {
		s.rotation.late.Stop()
		s.sayGoodbye("the token was replaced", 0)
		return nil
	}
	if err := s.gateway.control.TokenRotationFailed(ctx, s.agent, a.Operation, a.Problem); err != nil {
		return later("recording that a rotation has failed: %w", err)
	}
	s.log().Warn("the agent did not take its new token", "operation", string(a.Operation), obs.KeyReason, a.Problem)
	s.endRotation()
	return nil
}

// endRotation lets others have a try. Only the stream's handler calls it.
func (s *session) endRotation() {
	if s.rotation == nil {
		return
	}
	s.rotation.late.Stop()
	s.rotation.end()
	s.rotation = nil
}
