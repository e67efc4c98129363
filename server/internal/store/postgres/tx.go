package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

const (
	beginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	beginRead  = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	takeGate   = "SELECT pg_advisory_xact_lock($1, $2)"
	shareGate  = "SELECT pg_advisory_xact_lock_shared($1, $2)"

	// rollbackTimeout limits the cleanup after the context of the caller has ended.
	rollbackTimeout = 5 * time.Second
)

// tx is one transaction on one connection. Its BEGIN, and each change of scope, is sent in one message with the
// statement that needs it.
type tx struct {
	conn     *pgxpool.Conn
	origin   string // identifies this process for its own listener
	writable bool
	gates    []gate // to be held from the start
	begun    bool
	ended    bool
	place    place
	serials  map[sqlstore.Subject]int64 // subjects that were read, with their serials
	last     bool                       // the lock of the outbox is held
	checked  bool                       // what was read is unchanged
	recorded bool                       // there are changes in the outbox
	// committing means that only the database knows the outcome.
	committing bool
	// discard means that the connection must not be reused.
	discard bool
	// failed is the first error of the database, which has ended the transaction there.
	failed error
}

var _ sqlstore.Conn = (*tx)(nil)

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

// open queues the BEGIN of the transaction if it has not begun.
func (t *tx) open(b *pgx.Batch) {
	if t.begun {
		return
	}
	t.begun = true
	if !t.writable {
		b.Queue(beginRead)
		return
	}
	b.Queue(beginWrite)
	for _, g := range t.gates {
		take := takeGate
		if g.shared {
			take = shareGate
		}
		b.Queue(take, int32(lockClass), g.key)
	}
}

// query runs one statement and passes its result to use.
func (t *tx) query(ctx context.Context, of sqlstore.Scope, query string, args []any, use func(pgx.Rows) error) error {
	return t.queryAt(ctx, placeOf(of), of, query, args, use)
}

func (t *tx) queryAt(ctx context.Context, p place, of sqlstore.Scope, query string, args []any, use func(pgx.Rows) error) error {
	if err := t.Usable(ctx); err != nil {
		return err
	}
	query, args = translate(query), clean(args)
	if t.begun && t.place == p && !t.mustLook(of) {
		rows, err := t.conn.Query(ctx, query, args...)
		if err != nil {
			return t.fail(ctx, err)
		}
		return t.fail(ctx, use(rows))
	}
	var b pgx.Batch
	t.open(&b)
	t.goTo(&b, p)
	t.look(&b, of)
	b.Queue(query, args...).Query(use)
	return t.send(ctx, &b)
}

// send runs a batch and all result functions of its statements.
func (t *tx) send(ctx context.Context, b *pgx.Batch) error {
	return t.fail(ctx, t.conn.SendBatch(ctx, b).Close())
}

// fail keeps the first error: the transaction has ended there.
func (t *tx) fail(ctx context.Context, err error) error {
	if err != nil {
		t.failed = mapError(ctx, err, t.conn.Conn().IsClosed())
		if t.writable && errors.Is(t.failed, store.ErrReadOnly) {
			// Only the node can have made this transaction read-only: it was demoted during the connection.
			t.failed = fmt.Errorf("%w: %w", errReadOnlyNode, err)
			t.discard = true
		}
	}
	return t.failed
}

// Alone implements [sqlstore.Conn].
func (t *tx) Alone() bool { return false }

// Exec implements [sqlstore.Conn].
func (t *tx) Exec(ctx context.Context, of sqlstore.Scope, query string, args ...any) (n int64, err error) {
	err = t.query(ctx, of, query, args, func(rows pgx.Rows) error {
		rows.Close()
		n = rows.CommandTag().RowsAffected()
		return rows.Err()
	})
	return n, err
}

// Get implements [sqlstore.Conn].
func (t *tx) Get(ctx context.Context, of sqlstore.Scope, dest []any, query string, args ...any) error {
	found := false
	err := t.query(ctx, of, query, args, func(rows pgx.Rows) error {
		defer rows.Close()
		if rows.Next() {
			found = true
			if err := rows.Scan(dest...); err != nil {
				return err
			}
		}
		rows.Close()
		return rows.Err()
	})
	if err == nil && !found {
		return store.ErrNotFound
	}
	return err
}

// Each implements [sqlstore.Conn].
func (t *tx) Each(ctx context.Context, of sqlstore.Scope, scan func(sqlstore.Row) error, query string, args ...any) error {
	return t.query(ctx, of, query, args, func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// rollback ends the transaction if it has not ended. If that fails, the connection is closed, which ends it
// too; the pool replaces it.
func (t *tx) rollback(ctx context.Context) {
	if t.ended {
		return
	}
	t.ended = true
	if !t.begun || t.conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := t.conn.Exec(ctx, "ROLLBACK"); err != nil || t.discard {
		_ = t.conn.Conn().Close(ctx)
	}
}
