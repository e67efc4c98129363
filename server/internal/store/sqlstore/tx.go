package sqlstore

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Row is one row of a result: *sql.Rows and pgx.Rows implement it.
type Row interface {
	Scan(dest ...any) error
}

// Conn runs the statements of one transaction. Its creator begins and ends it. Errors are those of the
// contract; after an error of the database, as opposed to one of a row, every later call fails with it.
type Conn interface {
	// Exec returns the number of affected rows.
	Exec(ctx context.Context, of Scope, query string, args ...any) (int64, error)
	// Get scans the first row of the result; none is [store.ErrNotFound].
	Get(ctx context.Context, of Scope, dest []any, query string, args ...any) error
	// Each calls scan for every row of the result. scan must not use the Conn.
	Each(ctx context.Context, of Scope, scan func(Row) error, query string, args ...any) error
	// Bulk runs a statement for many rows of the tenant of a scope. touched, if not nil, gets the index of each
	// row that made a difference.
	Bulk(ctx context.Context, of Scope, b Bulk, rows [][]any, touched func(i int)) error
	// Alone reports whether there is no other writer during this transaction.
	Alone() bool
	// Usable returns why no statement could run now. A context that has ended ends the transaction.
	Usable(ctx context.Context) error
	// Finish writes a tail: the statements first, then the changes, each in order.
	Finish(ctx context.Context, tail Tail) error
}

// Tail is what a transaction writes last: rows whose numbers must grow in the order of commits, so that a
// reader that has seen one never gets a lower one later. In a database with many writers, this part is
// exclusive until the commit, and therefore short.
type Tail struct {
	Statements []Statement
	Changes    []store.Change // all at the time At
	At         time.Time
	Touched    []Subject // changed in addition to Changes
}

// Empty reports whether there is nothing to write.
func (t Tail) Empty() bool { return len(t.Statements) == 0 && len(t.Changes) == 0 }

// Statement is a write without a result.
type Statement struct {
	Of    Scope
	Query string
	Args  []any
}

// Bulk is a statement for many rows, with two equivalent texts: with one text for all databases, PostgreSQL
// would need a message per row.
type Bulk struct {
	// One is for one row: $1 is the tenant, and the values start at $2.
	One string
	// Many is for any number of rows, in a database with arrays: columns instead of values start at $2. It
	// returns the index, from 1, of each row that made a difference, or nothing.
	Many string
}

// Scope limits the rows of a statement. The zero value allows none.
type Scope struct {
	tenant     fleet.TenantID
	everywhere bool
	narrowed   bool // to the subjects that it depends on; otherwise everything
	subjects   []Subject
	owners     Owners
}

// Tenant returns the tenant of the scope, or false for all tenants.
func (s Scope) Tenant() (fleet.TenantID, bool) { return s.tenant, !s.everywhere }

// Tx is one transaction. It must be used by one goroutine.
type Tx struct {
	conn     Conn
	writable bool
	tail     Tail
}

var _ store.Tx = (*Tx)(nil)

// New returns the transaction that conn runs. Write the Tail before the commit.
func New(conn Conn, writable bool) *Tx {
	return &Tx{conn: conn, writable: writable, tail: Tail{At: time.Now()}}
}

// Tail returns what is still to be written.
func (t *Tx) Tail() Tail { return t.tail }

// of binds the transaction to the rows of one tenant.
func (t *Tx) of(tenant fleet.TenantID) bound { return bound{t, Scope{tenant: tenant}} }

// everywhere does not limit the tenant: only for methods without a tenant. Its results may depend on all
// tenants, unless narrowed: see about.
func (t *Tx) everywhere() bound { return bound{t, Scope{everywhere: true}} }

// bound is a transaction with a scope.
type bound struct {
	tx    *Tx
	scope Scope
}

// exec runs a write and returns the number of affected rows.
func (b bound) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if !b.tx.writable {
		return 0, store.ErrReadOnly
	}
	return b.tx.conn.Exec(ctx, b.scope, query, args...)
}

// insert is exec for "INSERT … ON CONFLICT DO NOTHING": an existing row is ErrExists and, unlike an error of
// the database, leaves the transaction usable.
func (b bound) insert(ctx context.Context, query string, args ...any) error {
	n, err := b.exec(ctx, query, args...)
	if err == nil && n == 0 {
		err = store.ErrExists
	}
	return err
}

// get scans the only row of a query; none is ErrNotFound.
func (b bound) get(ctx context.Context, dest []any, query string, args ...any) error {
	return b.tx.conn.Get(ctx, b.scope, dest, query, args...)
}

// returning is get for a write: "UPDATE … RETURNING".
func (b bound) returning(ctx context.Context, dest []any, query string, args ...any) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	return b.tx.conn.Get(ctx, b.scope, dest, query, args...)
}

// each calls scan for every row of a query.
func (b bound) each(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	return b.tx.conn.Each(ctx, b.scope, scan, query, args...)
}

// returningEach is each for a write.
func (b bound) returningEach(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	return b.tx.conn.Each(ctx, b.scope, scan, query, args...)
}

// bulk runs a write for many rows.
func (b bound) bulk(ctx context.Context, statement Bulk, rows [][]any, touched func(i int)) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	if len(rows) == 0 {
		return nil
	}
	return b.tx.conn.Bulk(ctx, b.scope, statement, rows, touched)
}

// record adds a record of the outbox for the end of the transaction. The caller sets TenantID, Kind, and the
// fields of the kind.
func (t *Tx) record(c store.Change) error {
	if !t.writable {
		return store.ErrReadOnly
	}
	t.tail.Changes = append(t.tail.Changes, c)
	return nil
}

// last adds a write for the end of the transaction.
func (b bound) last(ctx context.Context, query string, args ...any) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	if err := b.tx.conn.Usable(ctx); err != nil {
		return err
	}
	b.tx.tail.Statements = append(b.tx.tail.Statements, Statement{b.scope, query, args})
	return nil
}

// flush writes the tail so far, for a statement that depends on it.
func (t *Tx) flush(ctx context.Context) error {
	if t.tail.Empty() {
		return nil
	}
	if err := t.conn.Finish(ctx, t.tail); err != nil {
		return err
	}
	t.tail = Tail{At: t.tail.At}
	return nil
}
