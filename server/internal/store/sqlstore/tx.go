package sqlstore

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Row is one row of an answer: *sql.Rows and pgx.Rows both are.
type Row interface {
	Scan(dest ...any) error
}

// Conn runs the statements of one transaction. Beginning and ending it is the business of whoever
// made it. Errors are those of the contract; after one that is of the database, not of a row, every
// later call fails with it.
type Conn interface {
	// Exec returns the number of rows that the statement touched.
	Exec(ctx context.Context, of Scope, query string, args ...any) (int64, error)
	// Get scans the first row of the answer; none is [store.ErrNotFound].
	Get(ctx context.Context, of Scope, dest []any, query string, args ...any) error
	// Each calls scan for every row of the answer. scan must not use the Conn.
	Each(ctx context.Context, of Scope, scan func(Row) error, query string, args ...any) error
	// Bulk runs a statement for many rows of the tenant of a scope. touched, if it is not nil, gets the
	// place of each row that made a difference.
	Bulk(ctx context.Context, of Scope, b Bulk, rows [][]any, touched func(i int)) error
	// Alone reports whether nobody else writes to the database during this transaction.
	Alone() bool
	// Usable says why no statement could run now. A context that has ended ends the transaction.
	Usable(ctx context.Context) error
	// Finish writes a tail: the statements first, and then the changes, each in order.
	Finish(ctx context.Context, tail Tail) error
}

// Tail is what a transaction writes last: rows whose numbers have to grow in the order of commits,
// so that a reader who has seen one never meets a lower one later. In a database with many writers
// they exclude each other from here to the commit, and so only that long.
type Tail struct {
	Statements []Statement
	Changes    []store.Change // all at the time At
	At         time.Time
	Touched    []Subject // changed beside what Changes say
}

// Empty reports whether there is nothing to write.
func (t Tail) Empty() bool { return len(t.Statements) == 0 && len(t.Changes) == 0 }

// Statement is one that writes and whose outcome nobody waits for.
type Statement struct {
	Of    Scope
	Query string
	Args  []any
}

// Bulk is a statement that is run for many rows, in the two texts that do the same: here the one text
// for all databases would cost one of them a message per row.
type Bulk struct {
	// One does it for one row: $1 is the tenant, and from $2 on come the values.
	One string
	// Many does it for any number, in a database that has arrays: from $2 on come columns in the
	// place of values. It returns the place, from 1, of each row that made a difference, or nothing.
	Many string
}

// Scope is whose rows a statement may touch. The zero value is nobody's.
type Scope struct {
	tenant     fleet.TenantID
	everywhere bool
	narrowed   bool // to what these depend on; else it is everything
	subjects   []Subject
	owners     Owners
}

// Tenant returns the one tenant of the scope, or false where it is all of them.
func (s Scope) Tenant() (fleet.TenantID, bool) { return s.tenant, !s.everywhere }

// Tx is one transaction. It belongs to one goroutine.
type Tx struct {
	conn     Conn
	writable bool
	tail     Tail
}

var _ store.Tx = (*Tx)(nil)

// New returns the transaction that conn runs. Whoever commits it writes the Tail first.
func New(conn Conn, writable bool) *Tx {
	return &Tx{conn: conn, writable: writable, tail: Tail{At: time.Now()}}
}

// Tail returns what is yet to be written.
func (t *Tx) Tail() Tail { return t.tail }

// of binds the transaction to the rows of one tenant.
func (t *Tx) of(tenant fleet.TenantID) bound { return bound{t, Scope{tenant: tenant}} }

// everywhere binds the transaction to nothing: for methods that take no tenant, and only for them.
// What is read there may depend on all that any tenant does, unless it is narrowed: see about.
func (t *Tx) everywhere() bound { return bound{t, Scope{everywhere: true}} }

// bound is a transaction that knows whose rows it is about.
type bound struct {
	tx    *Tx
	scope Scope
}

// exec runs a statement that writes and returns the number of rows that it touched.
func (b bound) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if !b.tx.writable {
		return 0, store.ErrReadOnly
	}
	return b.tx.conn.Exec(ctx, b.scope, query, args...)
}

// insert is exec for "INSERT … ON CONFLICT DO NOTHING": a row that is there already is ErrExists
// and, unlike an error of the database, leaves the transaction usable.
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

// returning is get for a statement that writes: "UPDATE … RETURNING".
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

// returningEach is each for a statement that writes.
func (b bound) returningEach(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	return b.tx.conn.Each(ctx, b.scope, scan, query, args...)
}

// bulk runs a statement that writes for many rows.
func (b bound) bulk(ctx context.Context, statement Bulk, rows [][]any, touched func(i int)) error {
	if !b.tx.writable {
		return store.ErrReadOnly
	}
	if len(rows) == 0 {
		return nil
	}
	return b.tx.conn.Bulk(ctx, b.scope, statement, rows, touched)
}

// record keeps a record of the outbox for the end of the transaction. TenantID, Kind and what the
// kind says are c's; the rest is filled in.
func (t *Tx) record(c store.Change) error {
	if !t.writable {
		return store.ErrReadOnly
	}
	t.tail.Changes = append(t.tail.Changes, c)
	return nil
}

// last keeps a statement that writes for the end of the transaction.
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

// flush writes the tail so far, for a statement that is about what is in it.
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
