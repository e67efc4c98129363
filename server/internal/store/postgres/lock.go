package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// checkEvery is how often a connection that holds locks is checked. A broken connection is noticed immediately.
const checkEvery = 10 * time.Second

// Lock implements [store.Store] with advisory locks of a session. The database releases them when it notices
// that the connection is gone, which may be later than Lost.
func (s *Store) Lock(ctx context.Context, name string) (store.Lock, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	l, err := s.locks.take(ctx, name)
	if err != nil {
		return nil, false, fmt.Errorf("locking %q: %w", name, err)
	}
	return l, l != nil, nil
}

// locker holds all locks of the process on one connection, which it opens on first use and again after a
// failure.
type locker struct {
	config *pgx.ConnConfig
	log    *slog.Logger

	// A goroutine always waits for the connection to break, and holds mu. To use the connection, add to wanted
	// first and then interrupt the wait.
	wanted    atomic.Int32
	interrupt atomic.Pointer[context.CancelFunc]

	mu     sync.Mutex
	conn   *pgx.Conn
	held   map[string]*lock
	closed bool
	done   sync.WaitGroup
}

type lock struct {
	locker *locker
	name   string
	lost   chan struct{}
}

// Lost implements [store.Lock].
func (l *lock) Lost() <-chan struct{} { return l.lost }

// Release implements [store.Lock].
func (l *lock) Release() { l.locker.release(l) }

// keyOf returns the key of a lock in the database. Two names with one key exclude each other.
func keyOf(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// lockConn locks mu, and with it the connection.
func (l *locker) lockConn() {
	l.wanted.Add(1)
	if stop := l.interrupt.Load(); stop != nil {
		(*stop)()
	}
	l.mu.Lock()
	l.wanted.Add(-1)
}

// take returns nil if the name is locked, by this process or another.
func (l *locker) take(ctx context.Context, name string) (*lock, error) {
	l.lockConn()
	defer l.mu.Unlock()
	if l.closed {
		return nil, store.ErrClosed
	}
	if l.held[name] != nil {
		return nil, nil
	}
	if err := l.connectLocked(ctx); err != nil {
		return nil, err
	}
	ok, err := l.askLocked(ctx, "SELECT pg_try_advisory_lock($1)", name)
	if err != nil || !ok {
		return nil, err
	}
	taken := &lock{locker: l, name: name, lost: make(chan struct{})}
	l.held[name] = taken
	return taken, nil
}

func (l *locker) release(given *lock) {
	l.lockConn()
	defer l.mu.Unlock()
	if l.held[given.name] != given {
		return // released or lost before, and perhaps locked again
	}
	delete(l.held, given.name)
	_, err := l.askLocked(context.Background(), "SELECT pg_advisory_unlock($1)", given.name)
	if err != nil {
		l.log.Warn("could not release a lock: releasing all locks", "name", given.name, "error", err)
	}
}

// askLocked does not use the cancellation of ctx: the driver would close the connection with it, and all locks
// would be lost.
func (l *locker) askLocked(ctx context.Context, query, name string) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	err = l.conn.QueryRow(ctx, query, keyOf(name)).Scan(&ok)
	if err != nil {
		gone := l.conn
		l.dropLocked()
		return false, mapError(context.Background(), err, gone.IsClosed())
	}
	return ok, nil
}

func (l *locker) connectLocked(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
	if err != nil {
		return unreachable(ctx, err)
	}
	l.conn, l.held = conn, map[string]*lock{}
	l.done.Go(func() { l.watch(conn) })
	return nil
}

// dropLocked closes the connection and thereby releases all its locks.
func (l *locker) dropLocked() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	_ = l.conn.Close(ctx)
	for _, lost := range l.held {
		close(lost.lost)
	}
	l.conn, l.held = nil, nil
}

// watch waits until conn breaks.
func (l *locker) watch(conn *pgx.Conn) {
	for l.watchOnce(conn) {
	}
}

// watchOnce returns false if conn is no longer in use.
func (l *locker) watchOnce(conn *pgx.Conn) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.interrupt.Store(&cancel)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != conn {
		return false
	}
	if l.wanted.Load() > 0 {
		return true
	}
	said, err := await(ctx, conn, checkEvery)
	if err == nil && said == nil && len(l.held) > 0 {
		err = ping(context.Background(), conn)
	}
	if err == nil || (errors.Is(err, context.Canceled) && !conn.IsClosed()) {
		return true
	}
	l.log.Warn("lost the connection that holds locks", "locks", len(l.held), "error", err)
	l.dropLocked()
	return false
}

// verify releases the locks if their node is no longer writable: another process may hold the same locks on the
// writable node.
func (l *locker) verify() {
	l.lockConn()
	defer l.mu.Unlock()
	if l.conn == nil {
		return
	}
	if err := ping(context.Background(), l.conn); err != nil {
		l.log.Warn("closed the connection that holds locks", "locks", len(l.held), "error", err)
		l.dropLocked()
	}
}

// close releases all locks: their holders are notified through Lost.
func (l *locker) close() {
	l.lockConn()
	l.closed = true
	l.dropLocked()
	l.mu.Unlock()
	l.done.Wait()
}
