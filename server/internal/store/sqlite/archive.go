package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store/archive"
)

// Backup writes the whole database to w, as one snapshot. A server may use the database at the same time.
func Backup(ctx context.Context, cfg Config, version string, w io.Writer) (err error) {
	db, err := openDB(cfg.Path, reading)
	if err != nil {
		return fmt.Errorf("opening %q: %w", cfg.Path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("reading %q: %w", cfg.Path, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	schema, tables, err := catalog(ctx, tx)
	if err != nil {
		return err
	}
	out, err := archive.NewWriter(w, archive.Manifest{Schema: schema, Database: "sqlite", Kedge: version, TakenAt: time.Now()})
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := dumpTable(ctx, tx, t, out); err != nil {
			return fmt.Errorf("reading table %s: %w", t.Name, err)
		}
	}
	return out.Close()
}

// catalog reads the version of the schema and its tables, parents first.
func catalog(ctx context.Context, tx *sql.Tx) (schema int64, tables []archive.Table, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&schema); err != nil {
		return 0, nil, fmt.Errorf("reading the version of the schema: %w", err)
	}
	names, err := texts(ctx, tx, `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if err != nil {
		return 0, nil, fmt.Errorf("listing tables: %w", err)
	}
	for _, name := range names {
		if archive.Transient(name) {
			continue
		}
		t := archive.Table{Name: name}
		if t.Columns, err = columns(ctx, tx, name); err != nil {
			return 0, nil, fmt.Errorf("listing the columns of %s: %w", name, err)
		}
		if t.Parents, err = texts(ctx, tx, `SELECT "table" FROM pragma_foreign_key_list($1)`, name); err != nil {
			return 0, nil, fmt.Errorf("listing the references of %s: %w", name, err)
		}
		tables = append(tables, t)
	}
	tables, err = archive.Order(tables)
	return schema, tables, err
}

// columns returns the columns that are not computed.
func columns(ctx context.Context, tx *sql.Tx, table string) ([]archive.Column, error) {
	rows, err := tx.QueryContext(ctx, "SELECT name, type FROM pragma_table_xinfo($1) WHERE hidden = 0 ORDER BY cid", table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	kinds := map[string]archive.Kind{"INTEGER": archive.Int, "TEXT": archive.Text, "BLOB": archive.Bytes}
	var out []archive.Column
	for rows.Next() {
		var c archive.Column
		var declared string
		if err := rows.Scan(&c.Name, &declared); err != nil {
			return nil, err
		}
		kind, ok := kinds[declared]
		if !ok {
			return nil, fmt.Errorf("column %s has type %q, which archives do not support", c.Name, declared)
		}
		c.Kind = kind
		out = append(out, c)
	}
	return out, rows.Err()
}

func texts(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]string, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

func dumpTable(ctx context.Context, tx *sql.Tx, t archive.Table, out *archive.Writer) error {
	if err := out.Table(t); err != nil {
		return err
	}
	//nolint:gosec // names of the database's own tables and columns, quoted
	rows, err := tx.QueryContext(ctx, "SELECT "+quoted(t)+" FROM "+quote(t.Name))
	if err != nil {
		return err
	}
	defer rows.Close()
	values, pointers := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(pointers...); err != nil {
			return err
		}
		for i, c := range t.Columns {
			if text, ok := values[i].([]byte); ok && c.Kind == archive.Text {
				values[i] = string(text)
			}
		}
		if err := out.Row(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

func quoted(t archive.Table) string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = quote(c.Name)
	}
	return strings.Join(names, ", ")
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
