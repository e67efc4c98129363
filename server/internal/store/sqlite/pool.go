package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// pool lends connections. database/sql has its own pool, but there prepared statements are looked up and
// prepared again per transaction. Here each connection keeps its recently used statements, which is most of the
// speed of small transactions.
type pool struct {
	idle   chan *conn
	closed chan struct{}
	once   sync.Once
}

func newPool(db *sql.DB, size int) *pool {
	p := &pool{idle: make(chan *conn, size), closed: make(chan struct{})}
	for range size {
		p.idle <- &conn{db: db}
	}
	return p
}

func (p *pool) acquire(ctx context.Context) (*conn, error) {
	if err := p.refused(ctx); err != nil {
		return nil, err
	}
	select {
	case c := <-p.idle:
		// The select is random when several cases are ready.
		if err := p.refused(ctx); err != nil {
			p.release(c)
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, store.ErrClosed
	}
}

func (p *pool) refused(ctx context.Context) error {
	select {
	case <-p.closed:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	default:
		return nil
	}
}

func (p *pool) release(c *conn) { p.idle <- c }

// close waits until all connections are returned and closes them. It reports whether it was the first call.
func (p *pool) close() bool {
	first := false
	p.once.Do(func() {
		first = true
		close(p.closed)
		for range cap(p.idle) {
			(<-p.idle).discard()
		}
	})
	return first
}

// conn is one connection with its prepared statements. It is opened on first use and belongs to one transaction
// at a time.
type conn struct {
	db    *sql.DB
	raw   *sql.Conn
	stmts statements
}

func (c *conn) open(ctx context.Context) error {
	if c.raw != nil {
		return nil
	}
	raw, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	c.raw = raw
	return nil
}

// prepare returns the statement of query, which is valid until the next call.
func (c *conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := c.stmts.get(query); stmt != nil {
		return stmt, nil
	}
	stmt, err := c.raw.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts.put(query, stmt)
	return stmt, nil
}

// discard closes the connection because its state is unknown; the next transaction opens a new one.
func (c *conn) discard() {
	if c.raw == nil {
		return
	}
	c.stmts.close()
	// ErrBadConn keeps database/sql from giving the connection out again, and closes it.
	_ = c.raw.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.raw.Close()
	c.raw = nil
}
