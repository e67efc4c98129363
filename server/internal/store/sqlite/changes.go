package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// record writes one record of the outbox. TenantID, Kind and what the kind says are c's; the rest
// is filled in.
func (t *tx) record(ctx context.Context, c store.Change) error {
	_, err := t.exec(ctx, `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, at)
		VALUES ($1, $2, $3, $4, $5, $6)`,
		string(c.TenantID), string(c.Kind), c.ID, string(c.AgentID), string(c.DeploymentID), t.at.UnixMicro())
	if err != nil {
		return fmt.Errorf("recording a change of %s %q: %w", c.Kind, c.ID, err)
	}
	t.recorded++
	return nil
}

// recordEach writes one record per row of a query that inserts into changes.
func (t *tx) recordEach(ctx context.Context, insert string, args ...any) error {
	n, err := t.exec(ctx, insert, args...)
	if err != nil {
		return fmt.Errorf("recording changes: %w", err)
	}
	t.recorded += int(n)
	return nil
}

type changes struct{ *tx }

const changeColumns = `SELECT seq, tenant_id, kind, id, agent_id, deployment_id, at FROM changes `

func (c changes) AfterAllTenants(ctx context.Context, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, changeColumns+`WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, limitOf(limit))
}

func (c changes) After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, changeColumns+`WHERE tenant_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
		tenant, seq, limitOf(limit))
}

func (c changes) list(ctx context.Context, query string, args ...any) ([]store.Change, error) {
	var out []store.Change
	err := c.each(ctx, func(rows *sql.Rows) error {
		var r store.Change
		err := rows.Scan(&r.Seq, &r.TenantID, &r.Kind, &r.ID, &r.AgentID, &r.DeploymentID, timeInto(&r.At))
		out = append(out, r)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("listing changes: %w", err)
	}
	return out, nil
}

func (c changes) Last(ctx context.Context) (int64, error) {
	var seq int64
	err := c.get(ctx, []any{&seq}, `SELECT COALESCE(MAX(seq), 0) FROM changes`)
	if err != nil {
		return 0, fmt.Errorf("reading the newest change: %w", err)
	}
	return seq, nil
}

func (c changes) First(ctx context.Context) (int64, error) {
	var seq int64
	err := c.get(ctx, []any{&seq}, `SELECT COALESCE(MIN(seq), 0) FROM changes`)
	if err != nil {
		return 0, fmt.Errorf("reading the oldest change: %w", err)
	}
	return seq, nil
}

func (c changes) Trim(ctx context.Context, n int) error {
	_, err := c.exec(ctx, `DELETE FROM changes
		WHERE seq <= (SELECT seq FROM changes ORDER BY seq DESC LIMIT 1 OFFSET $1)`, max(n, 1))
	if err != nil {
		return fmt.Errorf("trimming changes to %d: %w", n, err)
	}
	return nil
}
