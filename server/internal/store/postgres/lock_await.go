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
	// waitAtMost limits one wait in the database, whose server process does not notice during the wait that
	// this one has ended.
	waitAtMost = time.Minute
	// awaitShared is granted to all waiters together; the holder of the lock has it exclusively.
	awaitShared = "SELECT pg_advisory_lock_shared($1)"
	unawait     = "SELECT pg_advisory_unlock_shared($1)"

	lockNotAvailable = "55P03"
)

// AwaitFree implements [store.Store] by waiting for the lock in the database, on a separate connection: the
// database releases the lock as soon as the connection of the holder breaks.
func (s *Store) AwaitFree(ctx context.Context, name string) error {
	conn, err := pgx.ConnectConfig(ctx, waiting(s.locks.config))
	if err != nil {
		return fmt.Errorf("waiting for %q: %w", name, unreachable(ctx, err))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = conn.Close(closing) // releases the locks of the connection
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

// awaitOnce returns false if the lock was not free in time.
func awaitOnce(ctx context.Context, conn *pgx.Conn, key int64) (bool, error) {
	// Without a limit, a silently broken connection would be waited for forever.
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

// waiting returns a configuration whose statements are canceled in the database when their context ends:
// closing the connection alone would leave them waiting there.
func waiting(from *pgx.ConnConfig) *pgx.ConnConfig {
	cfg := from.Copy()
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(waitAtMost.Milliseconds(), 10)
	cfg.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: pingTimeout}
	}
	return cfg
}
