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

// errEnded says that a transaction was used after its function had returned.
var errEnded = errors.New("transaction has ended")

// mapError turns what database/sql and the driver return into what the contract knows. Errors
// that it has no word for keep their text but not their type: nobody above can depend on it.
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
		return fmt.Errorf("a row that is referred to: %w", store.ErrNotFound)
	}
	if e.Code()&0xff == lib.SQLITE_READONLY {
		return fmt.Errorf("%w: %v", store.ErrReadOnly, err)
	}
	return fmt.Errorf("database: %v", err)
}
