package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// connections keeps agents.connected consistent with the open rows of leading replicas. To change rows of an
// agent, lock its row in agents first: otherwise two replicas that change concurrently would not see each
// other.
type connections struct{ tx *Tx }

func (s connections) Put(ctx context.Context, c fleet.Connection) error {
	if err := s.put(ctx, c); err != nil {
		return fmt.Errorf("recording the connection of agent %q, replica %q: %w", c.AgentID, c.Replica, err)
	}
	return s.recordConnection(c.TenantID, c.AgentID, c.SessionID)
}

func (s connections) put(ctx context.Context, c fleet.Connection) error {
	connected, err := s.hold(ctx, c.TenantID, c.AgentID)
	if err != nil {
		return err
	}
	_, err = s.tx.of(c.TenantID).exec(ctx, `INSERT INTO connections (tenant_id, agent_id, replica, session_id, server, version,
			kube_version, cluster_uid, engine_namespace, remote_addr, standby, connected_at, last_seen_at, disconnected_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (tenant_id, agent_id, replica) DO UPDATE SET session_id = excluded.session_id, server = excluded.server,
			version = excluded.version, kube_version = excluded.kube_version, cluster_uid = excluded.cluster_uid, engine_namespace = excluded.engine_namespace,
			remote_addr = excluded.remote_addr, standby = excluded.standby, connected_at = excluded.connected_at,
			last_seen_at = excluded.last_seen_at, disconnected_at = excluded.disconnected_at`,
		c.TenantID, c.AgentID, c.Replica, c.SessionID, c.Server, c.Version, c.KubeVersion,
		c.ClusterUID, c.EngineNamespace, c.RemoteAddr, c.Standby, micros(c.ConnectedAt), micros(c.LastSeenAt), micros(c.DisconnectedAt))
	if err != nil || connected == c.Leads() {
		return err
	}
	return s.settle(ctx, c.TenantID, c.AgentID)
}

// hold locks the row of an agent and returns whether it is marked as connected.
func (s connections) hold(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) (connected bool, err error) {
	if !s.tx.writable {
		return false, store.ErrReadOnly
	}
	err = s.tx.of(tenant).get(ctx, []any{&connected}, `SELECT connected FROM agents
		WHERE tenant_id = $1 AND id = $2 /* FOR NO KEY UPDATE */`, tenant, agent)
	return connected, err
}

// settle updates the row of an agent: whether it has an open connection that leads.
func (s connections) settle(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) error {
	_, err := s.tx.of(tenant).exec(ctx, `UPDATE agents SET connected = EXISTS (SELECT 1 FROM connections
			WHERE tenant_id = $1 AND agent_id = $2 AND disconnected_at IS NULL AND NOT standby)
		WHERE tenant_id = $1 AND id = $2`, tenant, agent)
	return err
}

func (s connections) Close(ctx context.Context, tenant fleet.TenantID, session fleet.SessionID, lastSeen, at time.Time) (closed bool, err error) {
	if !s.tx.writable {
		return false, store.ErrReadOnly
	}
	agent, err := s.close(ctx, tenant, session, lastSeen, at)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("closing session %q: %w", session, err)
	}
	return true, s.recordConnection(tenant, agent, session)
}

func (s connections) close(ctx context.Context, tenant fleet.TenantID, session fleet.SessionID, lastSeen, at time.Time) (agent fleet.AgentID, err error) {
	err = s.tx.of(tenant).get(ctx, []any{&agent}, `SELECT agent_id FROM connections
		WHERE tenant_id = $1 AND session_id = $2 AND disconnected_at IS NULL`, tenant, session)
	if err != nil {
		return "", err
	}
	if _, err := s.hold(ctx, tenant, agent); err != nil {
		return "", err
	}
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE connections SET last_seen_at = $3, disconnected_at = $4
		WHERE tenant_id = $1 AND session_id = $2 AND disconnected_at IS NULL`, tenant, session, micros(lastSeen), micros(at))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return "", err
	}
	return agent, s.settle(ctx, tenant, agent)
}

// CloseOfServerAllTenants locks agents in the order of their ids, like all code that locks many.
func (s connections) CloseOfServerAllTenants(ctx context.Context, server string, lastSeen time.Time) (int, error) {
	ended, err := s.closeOf(ctx, server, lastSeen)
	if err != nil {
		return 0, fmt.Errorf("closing the connections of server %q: %w", server, err)
	}
	// An update returns its rows without a defined order.
	slices.SortFunc(ended, func(a, b fleet.Connection) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.AgentID, b.AgentID), cmp.Compare(a.Replica, b.Replica))
	})
	for _, c := range ended {
		if err := s.recordConnection(c.TenantID, c.AgentID, c.SessionID); err != nil {
			return 0, err
		}
	}
	return len(ended), nil
}

func (s connections) closeOf(ctx context.Context, server string, lastSeen time.Time) (ended []fleet.Connection, err error) {
	if !s.tx.writable {
		return nil, store.ErrReadOnly
	}
	db := s.tx.aside()
	of := `c.disconnected_at IS NULL AND c.server = $1`
	if server == "" {
		of = `c.disconnected_at IS NULL AND $1 = '' AND c.server NOT IN (SELECT id FROM server_replicas)`
	}
	var agents []fleet.AgentID
	err = db.each(ctx, func(row Row) error {
		var id fleet.AgentID
		err := row.Scan(&id)
		agents = append(agents, id)
		return err
	}, `SELECT a.id FROM agents a WHERE a.id IN (SELECT c.agent_id FROM connections c WHERE `+of+`)
		ORDER BY a.id /* FOR NO KEY UPDATE */`, server)
	if err != nil || len(agents) == 0 {
		return nil, err
	}
	err = db.returningEach(ctx, func(row Row) error {
		var c fleet.Connection
		err := row.Scan(&c.TenantID, &c.AgentID, &c.Replica, &c.SessionID)
		ended = append(ended, c)
		return err
	}, `UPDATE connections AS c SET
			last_seen_at = CASE WHEN c.last_seen_at < $2 THEN $2 ELSE c.last_seen_at END,
			disconnected_at = CASE WHEN c.last_seen_at < $2 THEN $2 ELSE c.last_seen_at END
		WHERE `+of+` AND c.agent_id IN (SELECT value FROM json_each($3))
		RETURNING tenant_id, agent_id, replica, session_id`, server, micros(lastSeen), idList(agents))
	if err != nil {
		return nil, err
	}
	_, err = db.exec(ctx, `UPDATE agents SET connected = EXISTS (SELECT 1 FROM connections c
			WHERE c.agent_id = agents.id AND c.disconnected_at IS NULL AND NOT c.standby)
		WHERE id IN (SELECT value FROM json_each($1))`, idList(agents))
	return ended, err
}

func (s connections) Trim(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error) {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM connections
		WHERE tenant_id = $1 AND disconnected_at IS NOT NULL AND disconnected_at < $2 AND EXISTS (SELECT 1 FROM connections newer
			WHERE newer.tenant_id = connections.tenant_id AND newer.agent_id = connections.agent_id AND (newer.last_seen_at > connections.last_seen_at
				OR newer.last_seen_at = connections.last_seen_at AND newer.replica > connections.replica))`, tenant, micros(before))
	if err != nil {
		return 0, fmt.Errorf("trimming connections of tenant %q: %w", tenant, err)
	}
	return int(n), nil
}

func (s connections) recordConnection(tenant fleet.TenantID, agent fleet.AgentID, session fleet.SessionID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeConnection, ID: string(session), AgentID: agent})
}

func (s connections) OfAgentsAllTenants(ctx context.Context, agents []fleet.AgentID) ([]fleet.Connection, error) {
	if len(agents) == 0 {
		return nil, nil
	}
	var out []fleet.Connection
	err := s.tx.aside().each(ctx, func(row Row) error {
		var c fleet.Connection
		err := row.Scan(&c.SessionID, &c.AgentID, &c.TenantID, &c.Replica, &c.Server, &c.Version, &c.KubeVersion, &c.ClusterUID, &c.EngineNamespace,
			&c.RemoteAddr, &c.Standby, timeInto(&c.ConnectedAt), timeInto(&c.LastSeenAt), timeInto(&c.DisconnectedAt))
		out = append(out, c)
		return err
	}, `SELECT session_id, agent_id, tenant_id, replica, server, version, kube_version, cluster_uid, engine_namespace, remote_addr, standby,
			connected_at, last_seen_at, disconnected_at
		FROM connections WHERE agent_id IN (SELECT value FROM json_each($1)) ORDER BY agent_id, replica`, idList(agents))
	if err != nil {
		return nil, fmt.Errorf("listing connections of %d agents: %w", len(agents), err)
	}
	return out, nil
}
