package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

// Config configures a store.
type Config struct {
	// Path of the database file. It is created, readable by its owner only, with its parent folders. SQLite
	// keeps two more files next to it while it is open (-wal and -shm).
	Path string
	// Log logs migrations. Nil discards.
	Log *slog.Logger
}

// Store is a database file. It is safe for concurrent use by one process; a second process on the same file
// would not be notified of commits.
type Store struct {
	writerDB, readerDB *sql.DB
	writer, readers    *pool
	hub                sqlstore.Hub
	locks              locks
}

var _ store.Store = (*Store)(nil)

// Open opens the database and migrates its schema. The caller closes the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, errors.New("opening the database: no path given")
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	path, err := prepareFile(cfg.Path)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, path, log); err != nil {
		return nil, fmt.Errorf("migrating %q: %w", cfg.Path, err)
	}
	s, err := newStore(path)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", cfg.Path, err)
	}
	return s, nil
}

func newStore(path string) (*Store, error) {
	writerDB, err := openDB(path, writing)
	if err != nil {
		return nil, err
	}
	readerDB, err := openDB(path, reading)
	if err != nil {
		return nil, errors.Join(err, writerDB.Close())
	}
	return &Store{
		writerDB: writerDB,
		readerDB: readerDB,
		writer:   newPool(writerDB, 1),
		// Reads are short; more readers than cores only need memory for page caches.
		readers: newPool(readerDB, max(4, runtime.GOMAXPROCS(0))),
	}, nil
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	recorded, err := transact(ctx, s.writer, true, fn)
	if err != nil {
		return err
	}
	if recorded {
		s.hub.Broadcast()
	}
	return nil
}

// View implements [store.Store]. The snapshot is that of fn's first read.
func (s *Store) View(ctx context.Context, fn func(tx store.Tx) error) error {
	_, err := transact(ctx, s.readers, false, fn)
	return err
}

// Notify implements [store.Store]. The channel is never closed.
func (s *Store) Notify(ctx context.Context) <-chan struct{} { return s.hub.Subscribe(ctx) }

// Lock implements [store.Store]. There is only this process, so it loses no lock.
func (s *Store) Lock(ctx context.Context, name string) (store.Lock, bool, error) {
	if err := s.writer.refused(ctx); err != nil {
		return nil, false, err
	}
	l, ok := s.locks.take(name)
	return l, ok, nil
}

// AwaitFree implements [store.Store].
func (s *Store) AwaitFree(ctx context.Context, name string) error { return s.locks.await(ctx, name) }

// Close waits for running transactions and closes the file. Every later call fails with
// [store.ErrClosed]; closing again does nothing.
func (s *Store) Close() error {
	if !s.readers.close() {
		return nil
	}
	s.writer.close()
	// Readers first: the last connection merges the WAL into the database file, which requires write access.
	return errors.Join(s.readerDB.Close(), s.writerDB.Close())
}

// transact runs fn in one transaction and reports whether it recorded changes.
func transact(ctx context.Context, p *pool, writable bool, fn func(tx store.Tx) error) (recorded bool, err error) {
	err = within(ctx, p, writable, func(t *tx) error {
		shared := sqlstore.New(t, writable)
		if err := fn(shared); err != nil {
			return err
		}
		err := t.Finish(ctx, shared.Tail())
		recorded = t.recorded
		return err
	})
	return recorded, err
}

// within runs fn between the beginning and the end of a transaction.
func within(ctx context.Context, p *pool, writable bool, fn func(t *tx) error) error {
	c, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer p.release(c)
	t, err := begin(ctx, c, writable)
	if err != nil {
		return err
	}
	// Does nothing after a commit. It runs while a panic or a Goexit of fn unwinds, too.
	defer t.rollback(ctx)
	if err := fn(t); err != nil {
		return err
	}
	return t.commit(ctx)
}
