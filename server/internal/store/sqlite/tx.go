package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

// tx is one transaction on one connection.
type tx struct {
	conn     *conn
	recorded bool // there are changes in the outbox
	ended    bool
	// failed is the first error of the database. After some errors (a full disk), SQLite rolls back by itself,
	// and later statements would commit separately: so nothing runs after any error.
	failed error
}

var _ sqlstore.Conn = (*tx)(nil)

func begin(ctx context.Context, c *conn, writable bool) (*tx, error) {
	t := &tx{conn: c}
	if err := c.open(ctx); err != nil {
		return nil, mapError(err)
	}
	query := "BEGIN"
	if writable {
		query = "BEGIN IMMEDIATE"
	}
	if _, err := t.Exec(ctx, sqlstore.Scope{}, query); err != nil {
		t.rollback(ctx)
		return nil, err
	}
	return t, nil
}

func (t *tx) commit(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	if _, err := t.Exec(ctx, sqlstore.Scope{}, "COMMIT"); err != nil {
		return err
	}
	t.ended = true
	return nil
}

// rollback ends the transaction if it has not ended. It must run, so it ignores the end of ctx.
func (t *tx) rollback(ctx context.Context) {
	if t.ended {
		return
	}
	t.failed = nil
	_, err := t.Exec(context.WithoutCancel(ctx), sqlstore.Scope{}, "ROLLBACK")
	t.ended = true
	if err != nil {
		t.conn.discard()
	}
}

// Usable implements [sqlstore.Conn].
func (t *tx) Usable(ctx context.Context) error {
	switch {
	case t.ended:
		return errEnded
	case t.failed != nil:
		return t.failed
	case ctx.Err() != nil:
		t.failed = ctx.Err()
	}
	return t.failed
}

// with runs one statement.
//
// The driver gets a context that never ends: otherwise it starts a goroutine per statement to watch it, which
// costs as much as a small statement, and interrupts add another state of a connection. Statements are short;
// the context is checked before each and at the commit.
func (t *tx) with(ctx context.Context, query string, use func(ctx context.Context, stmt *sql.Stmt) error) error {
	if err := t.Usable(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	stmt, err := t.conn.prepare(ctx, query)
	if err == nil {
		err = use(ctx, stmt)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	if err != nil {
		t.failed = mapError(err)
	}
	return t.failed
}

// Exec implements [sqlstore.Conn]. All rows are in one file that one program reads, so only the query limits
// the tenant.
func (t *tx) Exec(ctx context.Context, _ sqlstore.Scope, query string, args ...any) (n int64, err error) {
	err = t.with(ctx, query, func(ctx context.Context, stmt *sql.Stmt) error {
		res, err := stmt.ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

// Get implements [sqlstore.Conn].
func (t *tx) Get(ctx context.Context, _ sqlstore.Scope, dest []any, query string, args ...any) error {
	return t.with(ctx, query, func(ctx context.Context, stmt *sql.Stmt) error {
		return stmt.QueryRowContext(ctx, args...).Scan(dest...)
	})
}

// Each implements [sqlstore.Conn].
func (t *tx) Each(ctx context.Context, _ sqlstore.Scope, scan func(sqlstore.Row) error, query string, args ...any) error {
	return t.with(ctx, query, func(ctx context.Context, stmt *sql.Stmt) error {
		rows, err := stmt.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Alone implements [sqlstore.Conn]: there is one writer.
func (t *tx) Alone() bool { return true }

// Bulk implements [sqlstore.Conn]. A prepared statement in the same process costs less per row than splitting
// one argument with all rows.
func (t *tx) Bulk(ctx context.Context, of sqlstore.Scope, b sqlstore.Bulk, rows [][]any, touched func(i int)) error {
	tenant, _ := of.Tenant()
	var args []any
	for i, row := range rows {
		args = append(append(args[:0], string(tenant)), row...)
		n, err := t.Exec(ctx, of, b.One, args...)
		if err != nil {
			return err
		}
		if n > 0 && touched != nil {
			touched(i)
		}
	}
	return nil
}

// Finish implements [sqlstore.Conn]. There is one writer, so all numbers grow in the order of commits.
func (t *tx) Finish(ctx context.Context, tail sqlstore.Tail) error {
	for _, s := range tail.Statements {
		if _, err := t.Exec(ctx, s.Of, s.Query, s.Args...); err != nil {
			return err
		}
	}
	for _, c := range tail.Changes {
		_, err := t.Exec(ctx, sqlstore.Scope{}, `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, reason, ref, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			string(c.TenantID), string(c.Kind), c.ID, string(c.AgentID), string(c.DeploymentID), string(c.Reason), c.Ref, tail.At.UnixMicro())
		if err != nil {
			return fmt.Errorf("recording a change of %s %q: %w", c.Kind, c.ID, err)
		}
	}
	t.recorded = t.recorded || len(tail.Changes) > 0
	return nil
}
