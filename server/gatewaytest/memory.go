// Package gatewaytest runs the real gateway and the real listener over a control room that is
// nothing but maps, so that both ends of the wire can be tested against each other without a
// database. It is for tests only.
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

// Tenant is the one that every agent belongs to.
var Tenant = fleet.Tenant{ID: "ten-test", Name: "default"}

// Memory is a control room in memory. Its fields may be set before it is used; its methods are
// safe for concurrent use.
type Memory struct {
	// FailReport, when it returns an error, makes a Report fail with it.
	FailReport func([]control.AgentReports) error
	// SlowBundle, when not nil, is called before a bundle is returned.
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
	changed      chan struct{} // closed and replaced with every change of anything above
}

// token is what a token lets in.
type token struct {
	agent fleet.Agent
	id    fleet.TokenID
}

type bundleKey struct {
	tenant fleet.TenantID
	digest string
}

// Counts says how often control was asked.
type Counts struct {
	Authenticated, Connected, Disconnected, TargetsOf, Bundles, Reports, Statuses int
}

// NewMemory makes an empty control room.
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

func (m *Memory) noteLocked(c store.Change) {
	c.Seq, c.TenantID, c.At = int64(len(m.changes)+1), Tenant.ID, time.Now()
	m.changes = append(m.changes, c)
}

// Until waits until ok, which is called with the lock held, returns true.
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

// Revoke makes a token useless.
func (m *Memory) Revoke(secret string) { m.change(func() { m.revokeLocked(secret, true) }) }

// RevokeUnheard makes a token useless, and the change that tells of it is lost.
func (m *Memory) RevokeUnheard(secret string) { m.change(func() { m.revokeLocked(secret, false) }) }

func (m *Memory) revokeLocked(secret string, tell bool) {
	was := m.tokens[secret]
	delete(m.tokens, secret)
	if tell {
		m.noteLocked(store.Change{Kind: store.ChangeToken, ID: string(was.id), AgentID: was.agent.ID})
	}
}

// Deploy makes a target for an agent and returns it.
func (m *Memory) Deploy(agent fleet.Agent, deployment string, set *manifest.Set) fleet.Target {
	return m.DeployOf(Tenant, agent, deployment, set)
}

// DeployOf is Deploy for a deployment of another tenant, which was granted the agent's environment.
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

// Detach gives a target its next generation: to be let go of.
func (m *Memory) Detach(id fleet.TargetID) fleet.Target {
	return m.Desire(id, nil, func(d *fleet.Desired) { d.Tombstone, d.Detached = false, true })
}

// Desire gives a target its next generation: a set, or none for a tombstone.
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
		m.noteLocked(store.Change{Kind: store.ChangeDesired, ID: string(id), AgentID: t.AgentID})
	})
	return out
}

// Target returns the newest row of a target.
func (m *Memory) Target(id fleet.TargetID) fleet.Target {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.targets[id]
}

// Objects returns the objects of a target as they were reported.
func (m *Memory) Objects(id fleet.TargetID) []fleet.ObjectStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.objects[id])
}

// Connections returns every connection that there ever was, the open ones with no end.
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

// Events returns what agents told.
func (m *Memory) Events() []control.AgentEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// Ahead returns the targets of which agents hold more than the server.
func (m *Memory) Ahead() []fleet.TargetID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ahead)
}

// Counts returns how often control was asked.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// AwaitCapable waits until an agent has told what its cluster offers; it then knows that of it, as a store does.
func (m *Memory) AwaitCapable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error {
	return m.until(ctx, func() bool { return m.capabilities[agent.ID].Hash() == c.Hash() })
}

// AwaitAuthenticated waits until at least n tokens were looked at.
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

// AwaitTarget waits until a target's row is as ok says.
func (m *Memory) AwaitTarget(ctx context.Context, id fleet.TargetID, ok func(fleet.Target) bool) error {
	return m.until(ctx, func() bool { return ok(m.targets[id]) })
}

// AwaitObserved waits until a target reads as desired and in that state.
func (m *Memory) AwaitObserved(ctx context.Context, id fleet.TargetID, sync fleet.SyncState) error {
	return m.AwaitTarget(ctx, id, func(t fleet.Target) bool {
		return t.Observed.Version == t.Desired.Version && t.Observed.Sync == sync
	})
}

// AwaitEvents waits until agents have told at least n events.
func (m *Memory) AwaitEvents(ctx context.Context, n int) error {
	return m.until(ctx, func() bool { return len(m.events) >= n })
}
