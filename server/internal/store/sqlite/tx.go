package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// tx is one transaction on one connection.
type tx struct {
	conn     *conn
	writable bool
	at       time.Time // when it began: the time of its changes
	recorded int       // changes in the outbox
	ended    bool
	// failed is the first error of the database. SQLite rolls back by itself on some (a full
	// disk), and what ran after that would commit on its own: so nothing runs after any.
	failed error
}

var _ store.Tx = (*tx)(nil)

func begin(ctx context.Context, c *conn, writable bool) (*tx, error) {
	t := &tx{conn: c, writable: writable, at: time.Now()}
	if err := c.open(ctx); err != nil {
		return nil, mapError(err)
	}
	query := "BEGIN"
	if writable {
		query = "BEGIN IMMEDIATE"
	}
	if _, err := t.run(ctx, query); err != nil {
		t.rollback(ctx)
		return nil, err
	}
	return t, nil
}

func (t *tx) commit(ctx context.Context) error {
	if t.failed != nil {
		return t.failed
	}
	if _, err := t.run(ctx, "COMMIT"); err != nil {
		return err
	}
	t.ended = true
	return nil
}

// rollback ends the transaction if it has not ended. It must happen, so it outlives ctx.
func (t *tx) rollback(ctx context.Context) {
	if t.ended {
		return
	}
	t.failed = nil
	_, err := t.run(context.WithoutCancel(ctx), "ROLLBACK")
	t.ended = true
	if err != nil {
		t.conn.discard()
	}
}

// usable says why no statement may run now. A context that has ended ends the transaction.
func (t *tx) usable(ctx context.Context) error {
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
// The driver gets a context that never ends: otherwise it starts a goroutine per statement to
// watch it, which costs as much as a small statement, and an interrupted connection is one more
// state to be in. Statements are short; the context is looked at before each and at the commit.
func (t *tx) with(ctx context.Context, query string, use func(ctx context.Context, stmt *sql.Stmt) error) error {
	if err := t.usable(ctx); err != nil {
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

// run executes a statement and returns the number of rows that it touched.
func (t *tx) run(ctx context.Context, query string, args ...any) (n int64, err error) {
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

// exec is run for a statement that writes.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if !t.writable {
		return 0, store.ErrReadOnly
	}
	return t.run(ctx, query, args...)
}

// insert is exec for "INSERT … ON CONFLICT DO NOTHING": a row that is there already is ErrExists
// and, unlike an error of the database, leaves the transaction usable.
func (t *tx) insert(ctx context.Context, query string, args ...any) error {
	n, err := t.exec(ctx, query, args...)
	if err == nil && n == 0 {
		err = store.ErrExists
	}
	return err
}

// get scans the only row of a query; none is ErrNotFound.
func (t *tx) get(ctx context.Context, dest []any, query string, args ...any) error {
	return t.with(ctx, query, func(ctx context.Context, stmt *sql.Stmt) error {
		return stmt.QueryRowContext(ctx, args...).Scan(dest...)
	})
}

// each calls scan for every row of a query.
func (t *tx) each(ctx context.Context, scan func(rows *sql.Rows) error, query string, args ...any) error {
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

func (t *tx) Tenants() store.Tenants           { return tenants{t} }
func (t *tx) Agents() store.Agents             { return agents{t} }
func (t *tx) Connections() store.Connections   { return connections{t} }
func (t *tx) Tokens() store.Tokens             { return tokens{t} }
func (t *tx) Environments() store.Environments { return environments{t} }
func (t *tx) Repositories() store.Repositories { return repositories{t} }
func (t *tx) Deployments() store.Deployments   { return deployments{t} }
func (t *tx) Targets() store.Targets           { return targets{t} }
func (t *tx) Bundles() store.Bundles           { return bundles{t} }
func (t *tx) Events() store.Events             { return events{t} }
func (t *tx) Changes() store.Changes           { return changes{t} }
