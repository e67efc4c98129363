// Package gatewaytest runs the real gateway and the real listener with a [Memory] instead of control and a
// database, so that tests can run both ends of the agent protocol against each other. It is for tests only.
package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Tenant is the tenant of every agent.
var Tenant = fleet.Tenant{ID: "ten-test", Name: "default"}

// Memory implements gateway.Control in memory. Set its fields before use. Its methods are safe for concurrent
// use.
type Memory struct {
	// FailReport makes Report return its error, unless that is nil.
	FailReport func([]control.AgentReports) error
	// SlowBundle, if not nil, is called before a bundle is returned.
	SlowBundle func()

	mu           sync.Mutex
	tokens       map[string]token
	tenants      map[fleet.TenantID]string // names
	targets      map[fleet.TargetID]fleet.Target
	objects      map[fleet.TargetID][]fleet.ObjectStatus
	bundles      map[bundleKey]fleet.Bundle
	rotations    map[fleet.OperationID]*rotation
	connections  map[fleet.SessionID]fleet.Connection
	capabilities map[fleet.AgentID]fleet.Capabilities
	events       []control.AgentEvent
	ahead        []fleet.TargetID
	changes      []store.Change
	counts       Counts
	changed      chan struct{} // closed and replaced with every change of the fields above
}

// token is the agent that a token belongs to.
type token struct {
	agent fleet.Agent
	id    fleet.TokenID
}

type bundleKey struct {
	tenant fleet.TenantID
	digest string
}

// Counts is the number of calls and of records.
type Counts struct {
	Authenticated, Connected, Disconnected, TargetsOf, Bundles, Reports, Statuses int
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		tokens: map[string]token{}, tenants: map[fleet.TenantID]string{Tenant.ID: Tenant.Name},
		targets: map[fleet.TargetID]fleet.Target{}, objects: map[fleet.TargetID][]fleet.ObjectStatus{},
		bundles: map[bundleKey]fleet.Bundle{}, connections: map[fleet.SessionID]fleet.Connection{},
		capabilities: map[fleet.AgentID]fleet.Capabilities{},
		rotations:    map[fleet.OperationID]*rotation{}, changed: make(chan struct{}),
	}
}

func (m *Memory) change(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Memory) appendChangeLocked(c store.Change) {
	c.Seq, c.TenantID, c.At = int64(len(m.changes)+1), Tenant.ID, time.Now()
	m.changes = append(m.changes, c)
}

// until waits until ok returns true. It calls ok with the lock held.
func (m *Memory) until(ctx context.Context, ok func() bool) error {
	for {
		m.mu.Lock()
		done, changed := ok(), m.changed
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Enroll adds an agent and returns its token.
func (m *Memory) Enroll(name string) (fleet.Agent, string) {
	agent := fleet.Agent{ID: fleet.NewAgentID(), TenantID: Tenant.ID, Name: name, Scope: fleet.ScopeCluster}
	secret := auth.NewToken(auth.AgentTokenPrefix)
	m.change(func() { m.tokens[secret] = token{agent, fleet.NewTokenID()} })
	return agent, secret
}

// Revoke makes a token invalid.
func (m *Memory) Revoke(secret string) { m.change(func() { m.revokeLocked(secret, true) }) }

// RevokeUnnoticed makes a token invalid without a change in the feed.
func (m *Memory) RevokeUnnoticed(secret string) { m.change(func() { m.revokeLocked(secret, false) }) }

func (m *Memory) revokeLocked(secret string, tell bool) {
	was := m.tokens[secret]
	delete(m.tokens, secret)
	if tell {
		m.appendChangeLocked(store.Change{Kind: store.ChangeToken, ID: string(was.id), AgentID: was.agent.ID})
	}
}

// Deploy creates a target of an agent and returns it.
func (m *Memory) Deploy(agent fleet.Agent, deployment string, set *manifest.Set) fleet.Target {
	return m.DeployOf(Tenant, agent, deployment, set)
}

// DeployOf is Deploy for a deployment of another tenant that was granted the agent's environment.
func (m *Memory) DeployOf(tenant fleet.Tenant, agent fleet.Agent, deployment string, set *manifest.Set) fleet.Target {
	t := fleet.Target{
		ID: fleet.NewTargetID(), TenantID: tenant.ID, AgentTenant: agent.TenantID, AgentID: agent.ID,
		DeploymentName: deployment, AgentName: agent.Name,
	}
	m.change(func() {
		m.tenants[tenant.ID] = tenant.Name
		m.targets[t.ID] = t
	})
	return m.Desire(t.ID, set, func(*fleet.Desired) {})
}

// Detach makes the next generation of a target a detached one.
func (m *Memory) Detach(id fleet.TargetID) fleet.Target {
	return m.Desire(id, nil, func(d *fleet.Desired) { d.Tombstone, d.Detached = false, true })
}

// Desire sets the next generation of a target: a set, or a tombstone if set is nil.
func (m *Memory) Desire(id fleet.TargetID, set *manifest.Set, edit func(*fleet.Desired)) fleet.Target {
	var out fleet.Target
	m.change(func() {
		t := m.targets[id]
		t.Desired = fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: t.Desired.Generation + 1}, Namespace: "default",
			Commit: "c0ffee", Policy: fleet.Policy{Prune: true}, Tombstone: set == nil,
		}
		if set != nil {
			digest, content, size := set.Pack()
			t.Desired.Digest = digest
			m.bundles[bundleKey{t.TenantID, digest}] = fleet.Bundle{TenantID: t.TenantID, Digest: digest, Content: content, Size: size}
		}
		edit(&t.Desired)
		m.targets[id], out = t, t
		m.appendChangeLocked(store.Change{Kind: store.ChangeDesired, ID: string(id), AgentID: t.AgentID})
	})
	return out
}

// Target returns the newest row of a target.
func (m *Memory) Target(id fleet.TargetID) fleet.Target {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.targets[id]
}

// Objects returns the reported objects of a target.
func (m *Memory) Objects(id fleet.TargetID) []fleet.ObjectStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.objects[id])
}

// Connections returns all connections, open and ended.
func (m *Memory) Connections() []fleet.Connection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.connectionsLocked()
}

func (m *Memory) connectionsLocked() []fleet.Connection {
	out := make([]fleet.Connection, 0, len(m.connections))
	for _, c := range m.connections {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b fleet.Connection) int { return a.ConnectedAt.Compare(b.ConnectedAt) })
	return out
}

// Events returns the events that agents reported.
func (m *Memory) Events() []control.AgentEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// Ahead returns the targets of which an agent has a newer version than the server.
func (m *Memory) Ahead() []fleet.TargetID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ahead)
}

// Counts returns the number of calls and of records.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// AwaitCapable waits until an agent has sent these capabilities.
func (m *Memory) AwaitCapable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error {
	return m.until(ctx, func() bool { return m.capabilities[agent.ID].Hash() == c.Hash() })
}

// AwaitAuthenticated waits until at least n tokens were looked up.
func (m *Memory) AwaitAuthenticated(ctx context.Context, n int) error {
	return m.until(ctx, func() bool { return m.counts.Authenticated >= n })
}

// AwaitOpen waits until exactly n connections are open.
func (m *Memory) AwaitOpen(ctx context.Context, n int) error {
	open := 0
	err := m.until(ctx, func() bool {
		open = 0
		for _, c := range m.connections {
			if c.Connected() {
				open++
			}
		}
		return open == n
	})
	if err != nil {
		return fmt.Errorf("%d connections are open, want %d: %w", open, n, err)
	}
	return nil
}

// AwaitTarget waits until ok returns true for a target.
func (m *Memory) AwaitTarget(ctx context.Context, id fleet.TargetID, ok func(fleet.Target) bool) error {
	return m.until(ctx, func() bool { return ok(m.targets[id]) })
}

// AwaitObserved waits until the observed version of a target is the desired one, in the given sync state.
func (m *Memory) AwaitObserved(ctx context.Context, id fleet.TargetID, sync fleet.SyncState) error {
	return m.AwaitTarget(ctx, id, func(t fleet.Target) bool {
		return t.Observed.Version == t.Desired.Version && t.Observed.Sync == sync
	})
}

// AwaitEvents waits until agents have reported at least n events.
func (m *Memory) AwaitEvents(ctx context.Context, n int) error {
	return m.until(ctx, func() bool { return len(m.events) >= n })
}
