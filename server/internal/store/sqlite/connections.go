package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type connections struct{ *tx }

func (s connections) Put(ctx context.Context, c fleet.Connection) error {
	_, err := s.exec(ctx, `INSERT INTO connections (tenant_id, agent_id, replica, session_id, version, kube_version,
			cluster_uid, remote_addr, connected_at, last_seen_at, disconnected_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (tenant_id, agent_id, replica) DO UPDATE SET session_id = excluded.session_id,
			version = excluded.version, kube_version = excluded.kube_version, cluster_uid = excluded.cluster_uid,
			remote_addr = excluded.remote_addr, connected_at = excluded.connected_at,
			last_seen_at = excluded.last_seen_at, disconnected_at = excluded.disconnected_at`,
		c.TenantID, c.AgentID, c.Replica, c.SessionID, c.Version, c.KubeVersion,
		c.ClusterUID, c.RemoteAddr, micros(c.ConnectedAt), micros(c.LastSeenAt), micros(c.DisconnectedAt))
	if err != nil {
		return fmt.Errorf("recording the connection of agent %q, replica %q: %w", c.AgentID, c.Replica, err)
	}
	return s.recordConnection(ctx, c.TenantID, c.AgentID, c.SessionID)
}

func (s connections) Close(ctx context.Context, session fleet.SessionID, lastSeen, at time.Time) (closed bool, err error) {
	if !s.writable {
		return false, store.ErrReadOnly
	}
	var tenant fleet.TenantID
	var agent fleet.AgentID
	err = s.get(ctx, []any{&tenant, &agent}, `UPDATE connections SET last_seen_at = $2, disconnected_at = $3
		WHERE session_id = $1 AND disconnected_at IS NULL RETURNING tenant_id, agent_id`,
		session, micros(lastSeen), micros(at))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("closing session %q: %w", session, err)
	}
	return true, s.recordConnection(ctx, tenant, agent, session)
}

func (s connections) CloseAllTenants(ctx context.Context, lastSeen time.Time) error {
	err := s.recordEach(ctx, `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, at)
		SELECT tenant_id, $1, session_id, agent_id, '', $2 FROM connections
		WHERE disconnected_at IS NULL ORDER BY tenant_id, agent_id, replica`, store.ChangeConnection, micros(s.at))
	if err != nil {
		return fmt.Errorf("closing all connections: %w", err)
	}
	_, err = s.exec(ctx, `UPDATE connections SET
			last_seen_at = CASE WHEN last_seen_at < $1 THEN $1 ELSE last_seen_at END,
			disconnected_at = CASE WHEN last_seen_at < $1 THEN $1 ELSE last_seen_at END
		WHERE disconnected_at IS NULL`, micros(lastSeen))
	if err != nil {
		return fmt.Errorf("closing all connections: %w", err)
	}
	return nil
}

func (s connections) recordConnection(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, session fleet.SessionID) error {
	return s.record(ctx, store.Change{TenantID: tenant, Kind: store.ChangeConnection, ID: string(session), AgentID: agent})
}

const connectionColumns = `SELECT session_id, agent_id, tenant_id, replica, version, kube_version, cluster_uid, remote_addr,
	connected_at, last_seen_at, disconnected_at FROM connections `

func (s connections) List(ctx context.Context, tenant fleet.TenantID) ([]fleet.Connection, error) {
	return s.list(ctx, connectionColumns+`WHERE tenant_id = $1 ORDER BY agent_id, replica`, tenant)
}

func (s connections) OfAgent(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) ([]fleet.Connection, error) {
	return s.list(ctx, connectionColumns+`WHERE tenant_id = $1 AND agent_id = $2 ORDER BY replica`, tenant, agent)
}

func (s connections) list(ctx context.Context, query string, args ...any) ([]fleet.Connection, error) {
	var out []fleet.Connection
	err := s.each(ctx, func(rows *sql.Rows) error {
		var c fleet.Connection
		err := rows.Scan(&c.SessionID, &c.AgentID, &c.TenantID, &c.Replica, &c.Version, &c.KubeVersion, &c.ClusterUID,
			&c.RemoteAddr, timeInto(&c.ConnectedAt), timeInto(&c.LastSeenAt), timeInto(&c.DisconnectedAt))
		out = append(out, c)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("listing connections: %w", err)
	}
	return out, nil
}

func (s connections) Beat(ctx context.Context, t time.Time) error {
	_, err := s.exec(ctx, `INSERT INTO server_beat (one, at) VALUES (1, $1)
		ON CONFLICT (one) DO UPDATE SET at = excluded.at WHERE server_beat.at < excluded.at`, micros(t))
	if err != nil {
		return fmt.Errorf("recording a beat: %w", err)
	}
	return nil
}

func (s connections) LastBeat(ctx context.Context) (time.Time, error) {
	var t time.Time
	err := s.get(ctx, []any{timeInto(&t)}, `SELECT at FROM server_beat WHERE one = 1`)
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the last beat: %w", err)
	}
	return t, nil
}
