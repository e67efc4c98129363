package gatewaytest

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// rotation is an open or finished token rotation.
type rotation struct {
	agent     fleet.AgentID
	newToken  string
	started   bool
	state     fleet.OperationState
	message   string
	requested int // sessions that requested the new token
	sessions  int // sessions that received it
}

// Rotate requests a new token for an agent.
func (m *Memory) Rotate(agent fleet.Agent) fleet.OperationID {
	op := fleet.NewOperationID()
	m.change(func() {
		m.rotations[op] = &rotation{agent: agent.ID, state: fleet.OperationWaiting}
		m.appendChangeLocked(store.Change{Kind: store.ChangeOperation, ID: string(op)})
	})
	return op
}

// AwaitRotation waits until a rotation has ended and returns its result.
func (m *Memory) AwaitRotation(ctx context.Context, op fleet.OperationID) (fleet.OperationState, string, error) {
	var state fleet.OperationState
	var message string
	err := m.until(ctx, func() bool {
		r := m.rotations[op]
		state, message = r.state, r.message
		return state.Done()
	})
	return state, message, err
}

// AwaitRequested waits until n sessions have requested the new token of a rotation.
func (m *Memory) AwaitRequested(ctx context.Context, op fleet.OperationID, n int) error {
	return m.until(ctx, func() bool { return m.rotations[op].requested >= n })
}

// Sent returns how many sessions received the new token of a rotation.
func (m *Memory) Sent(op fleet.OperationID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rotations[op].sessions
}

// Valid reports whether a token is valid.
func (m *Memory) Valid(secret string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.tokens[secret]
	return ok
}

// RotationOf implements gateway.Control.
func (m *Memory) RotationOf(_ context.Context, _ fleet.TenantID, op fleet.OperationID) (fleet.AgentID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rotations[op]; r != nil && !r.state.Done() {
		return r.agent, nil
	}
	return "", nil
}

// OpenRotation implements gateway.Control.
func (m *Memory) OpenRotation(_ context.Context, agent fleet.Agent, with fleet.TokenID) (fleet.OperationID, error) {
	var open fleet.OperationID
	m.change(func() {
		for op, r := range m.rotations {
			if r.agent != agent.ID || r.state.Done() {
				continue
			}
			if r.newToken == "" || m.tokens[r.newToken].id != with {
				open = op
				continue
			}
			r.state = fleet.OperationCompleted
			for secret, t := range m.tokens {
				if t.agent.ID == agent.ID && t.id != with {
					m.revokeLocked(secret, true)
				}
			}
		}
	})
	return open, nil
}

// BeginRotation implements gateway.Control.
func (m *Memory) BeginRotation(_ context.Context, agent fleet.Agent, op fleet.OperationID) (string, func(), error) {
	secret := auth.NewToken(auth.AgentTokenPrefix)
	m.change(func() {
		r := m.rotations[op]
		r.requested++
		if r.started || r.state.Done() {
			secret = ""
			return
		}
		delete(m.tokens, r.newToken)
		m.tokens[secret] = token{agent, fleet.NewTokenID()}
		r.started, r.newToken, r.state = true, secret, fleet.OperationInProgress
		r.sessions++
	})
	return secret, func() { m.change(func() { m.rotations[op].started = false }) }, nil
}

// TokenRotationFailed implements gateway.Control.
func (m *Memory) TokenRotationFailed(_ context.Context, _ fleet.Agent, op fleet.OperationID, message string) error {
	m.change(func() {
		r := m.rotations[op]
		m.revokeLocked(r.newToken, true)
		r.state, r.message = fleet.OperationFailed, message
	})
	return nil
}
