package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// changes writes the records of its transaction before a read, so that a transaction sees its own changes.
type changes struct{ tx *Tx }

const changeColumns = `SELECT seq, tenant_id, kind, id, agent_id, deployment_id, reason, ref, at FROM changes `

func (c changes) AfterAllTenants(ctx context.Context, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, c.tx.aside(), changeColumns+`WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, limitOf(limit))
}

func (c changes) After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, c.tx.of(tenant), changeColumns+`WHERE tenant_id = $1 AND seq > $2 AND kind <> 'wake'
		ORDER BY seq LIMIT $3`,
		tenant, seq, limitOf(limit))
}

// WakeRepository fails if the repository does not exist.
func (c changes) WakeRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, wake store.Wake) error {
	var one int
	err := c.tx.of(tenant).get(ctx, []any{&one}, `SELECT 1 FROM repositories WHERE tenant_id = $1 AND id = $2`, tenant, repo)
	if err != nil {
		return fmt.Errorf("waking repository %q: %w", repo, err)
	}
	return c.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeWake, ID: string(repo), Reason: wake.Reason, Ref: wake.Ref})
}

func (c changes) list(ctx context.Context, db bound, query string, args ...any) ([]store.Change, error) {
	if err := c.tx.flush(ctx); err != nil {
		return nil, fmt.Errorf("listing changes: %w", err)
	}
	var out []store.Change
	err := db.each(ctx, func(row Row) error {
		var r store.Change
		err := row.Scan(&r.Seq, &r.TenantID, &r.Kind, &r.ID, &r.AgentID, &r.DeploymentID, &r.Reason, &r.Ref, timeInto(&r.At))
		out = append(out, r)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("listing changes: %w", err)
	}
	return out, nil
}

func (c changes) Last(ctx context.Context) (int64, error) {
	seq, err := c.number(ctx, `SELECT COALESCE(MAX(seq), 0) FROM changes`)
	if err != nil {
		return 0, fmt.Errorf("reading the newest change: %w", err)
	}
	return seq, nil
}

func (c changes) First(ctx context.Context) (int64, error) {
	seq, err := c.number(ctx, `SELECT COALESCE(MIN(seq), 0) FROM changes`)
	if err != nil {
		return 0, fmt.Errorf("reading the oldest change: %w", err)
	}
	return seq, nil
}

func (c changes) number(ctx context.Context, query string) (seq int64, err error) {
	if err := c.tx.flush(ctx); err != nil {
		return 0, err
	}
	err = c.tx.aside().get(ctx, []any{&seq}, query)
	return seq, err
}

func (c changes) Trim(ctx context.Context, n int) error {
	if err := c.tx.flush(ctx); err != nil {
		return fmt.Errorf("trimming changes to %d: %w", n, err)
	}
	_, err := c.tx.aside().exec(ctx, `DELETE FROM changes
		WHERE seq <= (SELECT seq FROM changes ORDER BY seq DESC LIMIT 1 OFFSET $1)`, max(n, 1))
	if err != nil {
		return fmt.Errorf("trimming changes to %d: %w", n, err)
	}
	return nil
}
