package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

const (
	// attempts is how often a transaction runs if others conflict with it. From the second attempt on it locks
	// others out, so that only deadlocks can occur.
	attempts = 10
	// reconnects is how often a transaction runs again because its connection was dead.
	reconnects = 2
	// pause limits the wait before another attempt.
	pause = 20 * time.Millisecond
)

// Config configures a store.
type Config struct {
	// URL is the connection string of the login role of the server, in the format of libpq and pgx;
	// pool_max_conns sets the number of connections for transactions (default 16). Two more are for
	// notifications and locks, and one for each other replica that is watched: up to four.
	URL string
	// Log logs broken connections. Nil discards.
	Log *slog.Logger
}

// Store is a database. It is safe for concurrent use, by any number of processes.
type Store struct {
	pool     *pgxpool.Pool
	origin   string // distinguishes notifications of this process from those of others
	hub      sqlstore.Hub
	locks    *locker
	listener *listener
	log      *slog.Logger

	stop   context.CancelFunc // of the listener
	done   sync.WaitGroup
	closed atomic.Bool
}

var _ store.Store = (*Store)(nil)

// Open connects to a database that [Migrate] has prepared. It refuses a schema of another version, and a role
// to which row-level security does not apply. The caller closes the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	pool, err := connect(ctx, cfg.URL, true)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, origin: rand.Text(), log: log}
	dedicated := pool.Config().ConnConfig
	s.locks = &locker{config: dedicated, log: log}
	first, err := listen(ctx, dedicated)
	if err != nil {
		pool.Close()
		return nil, err
	}
	lifetime, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.listener = &listener{config: dedicated, origin: s.origin, heard: s.hub.Broadcast, log: log, doubted: wait.NewSignal()}
	s.done.Go(func() { s.listener.run(lifetime, first) })
	return s, nil
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	var held []gate
	dead := 0
	for attempt := 1; ; attempt++ {
		t, err := s.transact(ctx, true, held, fn)
		if t != nil && t.mayHaveRecorded(err) {
			s.hub.Broadcast()
		}
		switch {
		case err == nil || t == nil:
			return err
		case errors.Is(t.failed, errConflict) && attempt < attempts:
			held = gates(t.serials)
		case errors.Is(t.failed, errReadOnlyNode) && dead < reconnects:
			dead++
			s.leaveNode(ctx)
		case errors.Is(t.failed, store.ErrUnavailable) && !t.committing && dead < reconnects:
			dead++
			s.pool.Reset() // the others are as old
		default:
			return err
		}
		if !sleep(ctx, mathrand.N(pause)) { // lets the conflicting transaction finish
			return ctx.Err()
		}
	}
}

// leaveNode closes every connection to a node that is no longer writable, as after a failover without broken
// connections: new ones reach the writable node.
func (s *Store) leaveNode(ctx context.Context) {
	s.log.WarnContext(ctx, "the database node is read-only: reconnecting")
	s.pool.Reset()
	s.locks.verify()
	s.listener.verify()
}

// View implements [store.Store]. The snapshot is that of fn's first read.
func (s *Store) View(ctx context.Context, fn func(tx store.Tx) error) error {
	for dead := 0; ; dead++ {
		t, err := s.transact(ctx, false, nil, fn)
		if err == nil || t == nil || !errors.Is(t.failed, store.ErrUnavailable) || dead == reconnects {
			return err
		}
		s.pool.Reset()
	}
}

// transact runs fn in one transaction. The transaction is nil if there was no connection for it.
func (s *Store) transact(ctx context.Context, writable bool, held []gate, fn func(tx store.Tx) error) (*tx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil && s.closed.Load() {
		return nil, store.ErrClosed
	}
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer conn.Release()
	t := &tx{conn: conn, origin: s.origin, writable: writable, gates: held, serials: map[sqlstore.Subject]int64{}}
	// Does nothing after a commit. It runs while a panic or a Goexit of fn unwinds, too.
	defer t.rollback(ctx)
	shared := sqlstore.New(t, writable)
	if err := fn(shared); err != nil {
		return t, err
	}
	return t, t.commit(ctx, shared.Tail())
}

// Notify implements [store.Store]. The channel is never closed.
func (s *Store) Notify(ctx context.Context) <-chan struct{} { return s.hub.Subscribe(ctx) }

// Close waits for running transactions, releases locks, and disconnects. Every later call fails with
// [store.ErrClosed]; closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.locks.close()
	s.pool.Close()
	s.done.Wait()
	return nil
}
