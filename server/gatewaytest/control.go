package gatewaytest

import (
	"context"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var _ gateway.Control = (*Memory)(nil)

// AuthenticateAgentToken implements gateway.Control.
func (m *Memory) AuthenticateAgentToken(_ context.Context, token string) (fleet.Agent, fleet.Tenant, fleet.AgentToken, error) {
	m.change(func() { m.counts.Authenticated++ })
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.tokens[token]
	if !ok {
		return fleet.Agent{}, fleet.Tenant{}, fleet.AgentToken{}, auth.ErrUnauthenticated
	}
	found.agent.Capabilities = m.capabilities[found.agent.ID].Hash()
	return found.agent, Tenant, fleet.AgentToken{ID: found.id, TenantID: Tenant.ID, AgentID: found.agent.ID}, nil
}

// AgentConnected implements gateway.Control.
func (m *Memory) AgentConnected(_ context.Context, c fleet.Connection) error {
	m.change(func() {
		m.counts.Connected++
		m.connections[c.SessionID] = c
	})
	return nil
}

// AgentDisconnected implements gateway.Control.
func (m *Memory) AgentDisconnected(_ context.Context, c fleet.Connection, lastSeen time.Time) error {
	m.change(func() {
		m.counts.Disconnected++
		c.LastSeenAt, c.DisconnectedAt = lastSeen, time.Now()
		m.connections[c.SessionID] = c
	})
	return nil
}

// AgentCapable implements gateway.Control.
func (m *Memory) AgentCapable(_ context.Context, agent fleet.Agent, c fleet.Capabilities) error {
	m.change(func() { m.capabilities[agent.ID] = c })
	return nil
}

// PushEnvironments implements gateway.Control.
func (*Memory) PushEnvironments(context.Context, fleet.Agent) ([]fleet.PushEnvironment, error) {
	return nil, nil
}

// EndpointsChecked implements gateway.Control.
func (*Memory) EndpointsChecked(context.Context, fleet.Agent, []fleet.EnvironmentCheck) error {
	return nil
}

// AgentApplications implements gateway.Control.
func (*Memory) AgentApplications(context.Context, fleet.Agent, fleet.ForeignApplications) error {
	return nil
}

// TargetsOf implements gateway.Control.
func (m *Memory) TargetsOf(_ context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.TargetsOf++
	var out []control.AgentTarget
	for id, t := range m.targets {
		if t.AgentID == agent.ID && (ids == nil || slices.Contains(ids, id)) {
			out = append(out, control.AgentTarget{Target: t, Tenant: m.tenants[t.TenantID]})
		}
	}
	return out, nil
}

// AgentAhead implements gateway.Control.
func (m *Memory) AgentAhead(_ context.Context, _ fleet.Agent, target fleet.TargetID, _ fleet.Version) error {
	m.change(func() { m.ahead = append(m.ahead, target) })
	return nil
}

// Bundle implements gateway.Control.
func (m *Memory) Bundle(_ context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error) {
	if m.SlowBundle != nil {
		m.SlowBundle()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Bundles++
	b, ok := m.bundles[bundleKey{tenant, digest}]
	if !ok {
		return fleet.Bundle{}, store.ErrNotFound
	}
	return b, nil
}

// BundleOwner implements gateway.Control.
func (m *Memory) BundleOwner(_ context.Context, agent fleet.Agent, digest string) (fleet.TenantID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.targets {
		if t.AgentID == agent.ID && t.Desired.Digest == digest {
			return t.TenantID, nil
		}
	}
	return "", store.ErrNotFound
}

// Report implements gateway.Control.
func (m *Memory) Report(_ context.Context, batch []control.AgentReports) error {
	if m.FailReport != nil {
		if err := m.FailReport(batch); err != nil {
			return err
		}
	}
	m.change(func() {
		m.counts.Reports++
		for _, from := range batch {
			for _, r := range from.Reports {
				m.counts.Statuses++
				m.observeLocked(from.Agent, r)
			}
			m.events = append(m.events, from.Events...)
		}
	})
	return nil
}

func (m *Memory) observeLocked(agent fleet.Agent, r store.Report) {
	t, ok := m.targets[r.Target]
	if !ok || t.AgentID != agent.ID {
		return
	}
	t.Observed = r.Observed
	m.targets[r.Target] = t
	if r.Observed.Sync == fleet.SyncDeleted && t.Desired.Tombstone {
		delete(m.targets, r.Target)
	}
	same := func(a, b fleet.ObjectRef) bool { a.Version, b.Version = "", ""; return a == b }
	objects := m.objects[r.Target]
	if r.Full {
		objects = nil
	}
	for _, o := range r.Objects {
		objects = slices.DeleteFunc(slices.Clone(objects), func(x fleet.ObjectStatus) bool { return same(x.ObjectRef, o.ObjectRef) })
		objects = append(objects, o)
	}
	for _, ref := range r.Gone {
		objects = slices.DeleteFunc(slices.Clone(objects), func(x fleet.ObjectStatus) bool { return same(x.ObjectRef, ref) })
	}
	slices.SortFunc(objects, func(a, b fleet.ObjectStatus) int {
		return slices.Compare([]string{a.Group, a.Kind, a.Namespace, a.Name}, []string{b.Group, b.Kind, b.Namespace, b.Name})
	})
	m.objects[r.Target] = objects
}

// FollowChanges implements gateway.Control.
func (m *Memory) FollowChanges(ctx context.Context, fn func([]store.Change)) error {
	for seen := 0; ; {
		err := m.until(ctx, func() bool { return len(m.changes) > seen })
		if err != nil {
			return nil
		}
		m.mu.Lock()
		batch := slices.Clone(m.changes[seen:])
		m.mu.Unlock()
		seen += len(batch)
		fn(batch)
	}
}
