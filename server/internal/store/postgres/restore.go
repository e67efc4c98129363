package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store/archive"
)

func restore(ctx context.Context, tx pgx.Tx, r *archive.Reader) error {
	schema, tables, err := catalog(ctx, tx)
	if err != nil {
		return err
	}
	// Forced row-level security hides all rows from the owner. Disabling it locks the tables until the end of
	// the transaction, which also restores it after a failure.
	if err := forceRowSecurity(ctx, tx, false); err != nil {
		return err
	}
	if err := checkEmpty(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM settings"); err != nil {
		return mapError(ctx, err, false)
	}
	err = archive.Restore(r, schema, tables, func(t archive.Table, next func() ([]any, bool, error)) error {
		return insertRows(ctx, tx, t, next)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	if _, err := tx.Exec(ctx, "UPDATE settings SET epoch = GREATEST(epoch + 1, $1)", now.UnixMilli()); err != nil {
		return fmt.Errorf("raising the epoch: %w", mapError(ctx, err, false))
	}
	if err := skipAhead(ctx, tx, now.UnixMicro()); err != nil {
		return err
	}
	return forceRowSecurity(ctx, tx, true)
}

// forceRowSecurity enables or disables row-level security for the owner of the tables.
func forceRowSecurity(ctx context.Context, tx pgx.Tx, on bool) error {
	word := "NO FORCE"
	if on {
		word = "FORCE"
	}
	_, err := tx.Exec(ctx, `DO $$ DECLARE protected REGCLASS; BEGIN
		FOR protected IN SELECT oid FROM pg_class WHERE relnamespace = current_schema::regnamespace AND relkind = 'r' AND relrowsecurity LOOP
			EXECUTE format('ALTER TABLE %s `+word+` ROW LEVEL SECURITY', protected);
		END LOOP; END $$`)
	if err != nil {
		return fmt.Errorf("opening the tables to their owner: %w", mapError(ctx, err, false))
	}
	return nil
}

func checkEmpty(ctx context.Context, tx pgx.Tx) error {
	var used bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM tenants) OR EXISTS (SELECT FROM api_tokens)`).Scan(&used)
	if err != nil {
		return mapError(ctx, err, false)
	}
	if used {
		return archive.ErrNotEmpty
	}
	return nil
}

func insertRows(ctx context.Context, tx pgx.Tx, t archive.Table, next func() ([]any, bool, error)) error {
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = c.Name
	}
	src := &rowSource{next: next}
	// COPY keeps explicit values of identity columns.
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, src); err != nil {
		if src.err != nil {
			return src.err
		}
		return mapError(ctx, err, false)
	}
	return nil
}

// rowSource adapts the rows of an archive to pgx.
type rowSource struct {
	next func() ([]any, bool, error)
	row  []any
	err  error
}

func (s *rowSource) Next() bool {
	var ok bool
	s.row, ok, s.err = s.next()
	return ok && s.err == nil
}

func (s *rowSource) Values() ([]any, error) { return clean(s.row), nil }
func (s *rowSource) Err() error             { return s.err }

// skipAhead makes the sequences of the database start at n.
func skipAhead(ctx context.Context, tx pgx.Tx, n int64) error {
	_, err := tx.Exec(ctx, `SELECT setval(pg_get_serial_sequence(a.attrelid::regclass::text, a.attname), $1)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = current_schema::regnamespace AND a.attidentity <> '' AND a.atttypid = 'bigint'::regtype`, n)
	if err != nil {
		return fmt.Errorf("raising the sequence numbers of the outbox: %w", mapError(ctx, err, false))
	}
	return nil
}
