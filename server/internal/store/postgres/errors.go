package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kedge-dev/kedge/server/internal/store"
)

var (
	// errEnded means that a transaction was used after its function returned.
	errEnded = errors.New("transaction has ended")
	// errConflict means that a transaction must run again. Update returns it only after many attempts.
	errConflict = errors.New("conflict with other transactions")
	// errReadOnlyNode means that the node is read-only. Update returns it only after several connections.
	errReadOnlyNode = fmt.Errorf("%w: the database node is read-only", store.ErrUnavailable)
)

// mapError converts errors of the driver to those of the contract. Other errors keep their text but not their
// type, so that no caller depends on it. If ctx has ended, it returns the error of ctx, because other errors
// are a consequence. gone means that the connection is closed.
func mapError(ctx context.Context, err error, gone bool) error {
	var e *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &e):
		return mapCode(e)
	case gone:
		return fmt.Errorf("%w: %v", store.ErrUnavailable, err)
	}
	return fmt.Errorf("database: %v", err)
}

// unreachable is mapError for an attempt to connect: every cause may be transient.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %v", store.ErrUnavailable, err)
}

func mapCode(e *pgconn.PgError) error {
	switch e.Code {
	case "40001", "40P01": // serialisation failure, deadlock
		return fmt.Errorf("%w: %v", errConflict, e)
	case "23505": // unique
		return fmt.Errorf("%w: %v", store.ErrExists, e)
	case "23503": // foreign key
		return fmt.Errorf("a row that is still referenced: %w", store.ErrNotFound)
	case "25006": // read-only transaction; see tx.fail for which
		return fmt.Errorf("%w: %v", store.ErrReadOnly, e)
	}
	switch e.Code[:2] {
	case "08", "53", "57": // connection, resources, the administrator
		return fmt.Errorf("%w: %v", store.ErrUnavailable, e)
	}
	return fmt.Errorf("database: %v", e)
}
