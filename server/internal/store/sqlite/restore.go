package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store/archive"
)

// Restore inserts a backup into a new or empty database, completely or not at all. Afterwards, the epoch and
// the numbers of the outbox are higher than any that agents and readers have seen, because the backup is older
// than they are.
func Restore(ctx context.Context, cfg Config, from io.Reader) (err error) {
	r, err := archive.NewReader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	path, err := prepareFile(cfg.Path)
	if err != nil {
		return err
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := migrate(ctx, path, log); err != nil {
		return fmt.Errorf("migrating %q: %w", cfg.Path, err)
	}
	// As in a migration, rows are checked together at the end.
	db, err := openDB(path, migrating)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("opening %q: %w", cfg.Path, err)
	}
	if err := restoreAll(ctx, tx, r); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func restoreAll(ctx context.Context, tx *sql.Tx, r *archive.Reader) error {
	schema, tables, err := catalog(ctx, tx)
	if err != nil {
		return err
	}
	if err := checkEmpty(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM settings"); err != nil {
		return err
	}
	err = archive.Restore(r, schema, tables, func(t archive.Table, next func() ([]any, bool, error)) error {
		return insertRows(ctx, tx, t, next)
	})
	if err != nil {
		return err
	}
	now := time.Now()
	if _, err := tx.ExecContext(ctx, "UPDATE settings SET epoch = MAX(epoch + 1, $1)", now.UnixMilli()); err != nil {
		return fmt.Errorf("raising the epoch: %w", err)
	}
	if err := skipAhead(ctx, tx, now.UnixMicro()); err != nil {
		return fmt.Errorf("raising the sequence numbers of the outbox: %w", err)
	}
	return checkReferences(ctx, tx)
}

func checkEmpty(ctx context.Context, tx *sql.Tx) error {
	for _, table := range []string{"tenants", "api_tokens"} {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" LIMIT 1)").Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return archive.ErrNotEmpty
		}
	}
	return nil
}

func insertRows(ctx context.Context, tx *sql.Tx, t archive.Table, next func() ([]any, bool, error)) error {
	places := make([]string, len(t.Columns))
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	//nolint:gosec // names of the database's own tables and columns, quoted
	stmt, err := tx.PrepareContext(ctx, "INSERT INTO "+quote(t.Name)+" ("+quoted(t)+") VALUES ("+strings.Join(places, ", ")+")")
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }() // the transaction ends it too
	for {
		values, ok, err := next()
		if err != nil || !ok {
			return err
		}
		if _, err := stmt.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
}

// skipAhead makes the sequences of the database start at n.
func skipAhead(ctx context.Context, tx *sql.Tx, n int64) error {
	tables, err := texts(ctx, tx, `SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'`)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := tx.ExecContext(ctx, "DELETE FROM sqlite_sequence WHERE name = $1", table); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)", table, n); err != nil {
			return err
		}
	}
	return nil
}

// checkReferences finds rows with missing references: the archive was not a consistent snapshot.
func checkReferences(ctx context.Context, tx *sql.Tx) error {
	broken, err := texts(ctx, tx, `SELECT "table" || ' to ' || parent FROM pragma_foreign_key_check LIMIT 1`)
	if err != nil {
		return fmt.Errorf("checking foreign keys: %w", err)
	}
	if len(broken) > 0 {
		return fmt.Errorf("rows of the backup refer to rows that it does not contain: %s", broken[0])
	}
	return nil
}
