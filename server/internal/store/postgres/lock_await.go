package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	// waitAtMost bounds one wait in the database. The server process there does not notice while it
	// waits that this one is gone: so many seconds later it does.
	waitAtMost = time.Minute
	// awaitShared is granted to all that wait, at once; who holds the lock has it alone.
	awaitShared = "SELECT pg_advisory_lock_shared($1)"
	unawait     = "SELECT pg_advisory_unlock_shared($1)"

	lockNotAvailable = "55P03"
)

// AwaitFree implements [store.Store] by waiting for the lock in the database, on a connection of its
// own: the database gives the lock away as soon as the holder's connection breaks.
func (s *Store) AwaitFree(ctx context.Context, name string) error {
	conn, err := pgx.ConnectConfig(ctx, waiting(s.locks.config))
	if err != nil {
		return fmt.Errorf("waiting for %q: %w", name, unreachable(ctx, err))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = conn.Close(closing) // gives back what is held
	}()
	for {
		free, err := awaitOnce(ctx, conn, keyOf(name))
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", name, mapError(ctx, err, conn.IsClosed()))
		}
		if free {
			return nil
		}
	}
}

// awaitOnce reports false when the lock was not free in time.
func awaitOnce(ctx context.Context, conn *pgx.Conn, key int64) (bool, error) {
	// A connection that broke without a word would be waited for forever.
	ctx, cancel := context.WithTimeout(ctx, waitAtMost+pingTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, awaitShared, key)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == lockNotAvailable {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = conn.Exec(ctx, unawait, key)
	return true, err
}

// waiting is a configuration whose statements end in the database when their context does: closing the
// connection alone would leave them waiting there.
func waiting(from *pgx.ConnConfig) *pgx.ConnConfig {
	cfg := from.Copy()
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(waitAtMost.Milliseconds(), 10)
	cfg.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: pingTimeout}
	}
	return cfg
}
