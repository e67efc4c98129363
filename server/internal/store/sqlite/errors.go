package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// errEnded means that a transaction was used after its function returned.
var errEnded = errors.New("transaction has ended")

// mapError converts errors of database/sql and of the driver to those of the contract. Other errors keep their
// text but not their type, so that no caller depends on it.
func mapError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("database: %v", err)
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_UNIQUE, lib.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %v", store.ErrExists, err)
	case lib.SQLITE_CONSTRAINT_FOREIGNKEY:
		return fmt.Errorf("a row that is still referenced: %w", store.ErrNotFound)
	}
	if e.Code()&0xff == lib.SQLITE_READONLY {
		return fmt.Errorf("%w: %v", store.ErrReadOnly, err)
	}
	return fmt.Errorf("database: %v", err)
}
