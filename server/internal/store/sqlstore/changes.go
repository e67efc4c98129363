package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// changes writes what its transaction has recorded before it looks: a transaction sees its own.
type changes struct{ tx *Tx }

const changeColumns = `SELECT seq, tenant_id, kind, id, agent_id, deployment_id, ref, at FROM changes `

func (c changes) AfterAllTenants(ctx context.Context, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, c.tx.aside(), changeColumns+`WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, limitOf(limit))
}

func (c changes) After(ctx context.Context, tenant fleet.TenantID, seq int64, limit int) ([]store.Change, error) {
	return c.list(ctx, c.tx.of(tenant), changeColumns+`WHERE tenant_id = $1 AND seq > $2 AND kind <> 'push'
		ORDER BY seq LIMIT $3`,
		tenant, seq, limitOf(limit))
}

// RecordPush asks for the repository first: nobody reads a push of one that is not there.
func (c changes) RecordPush(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, ref string) error {
	var one int
	err := c.tx.of(tenant).get(ctx, []any{&one}, `SELECT 1 FROM repositories WHERE tenant_id = $1 AND id = $2`, tenant, repo)
	if err != nil {
		return fmt.Errorf("recording a push to repository %q: %w", repo, err)
	}
	return c.tx.record(store.Change{TenantID: tenant, Kind: store.ChangePush, ID: string(repo), Ref: ref})
}

func (c changes) list(ctx context.Context, db bound, query string, args ...any) ([]store.Change, error) {
	if err := c.tx.flush(ctx); err != nil {
		return nil, fmt.Errorf("listing changes: %w", err)
	}
	var out []store.Change
	err := db.each(ctx, func(row Row) error {
		var r store.Change
		err := row.Scan(&r.Seq, &r.TenantID, &r.Kind, &r.ID, &r.AgentID, &r.DeploymentID, &r.Ref, timeInto(&r.At))
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
