package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kedge-dev/kedge/server/internal/store"
)

var (
	// errEnded says that a transaction was used after its function had returned.
	errEnded = errors.New("transaction has ended")
	// errConflict says that a transaction has to be run again. It leaves Update only after many tries.
	errConflict = errors.New("conflict with other transactions")
	// errReadOnlyNode says that the node refuses to write. It leaves Update only after several connections.
	errReadOnlyNode = fmt.Errorf("%w: the database node takes no writes", store.ErrUnavailable)
)

// mapError turns what the driver returns into what the contract knows. Errors that it has no word
// for keep their text but not their type: nobody above can depend on it. An error while ctx has
// ended is that of ctx: whatever else it says came of it. gone says that the connection is closed.
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

// unreachable is mapError for an attempt to connect: whatever the reason, it may pass.
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
		return fmt.Errorf("a row that is referred to: %w", store.ErrNotFound)
	case "25006": // read-only transaction; see tx.fail for which
		return fmt.Errorf("%w: %v", store.ErrReadOnly, e)
	}
	switch e.Code[:2] {
	case "08", "53", "57": // connection, resources, the administrator
		return fmt.Errorf("%w: %v", store.ErrUnavailable, e)
	}
	return fmt.Errorf("database: %v", e)
}
