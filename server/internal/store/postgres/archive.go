package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store/archive"
)

// Backup writes the whole database to w, as one snapshot, with the login role of the server. Servers may use
// the database at the same time.
func Backup(ctx context.Context, cfg Config, version string, w io.Writer) error {
	pool, err := connect(ctx, cfg.URL, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, enterScope, fleetRole, ""); err != nil {
			return mapError(ctx, err, false)
		}
		return backup(ctx, tx, version, w)
	})
	if err != nil {
		return fmt.Errorf("backing up the database: %w", err)
	}
	return nil
}

func backup(ctx context.Context, tx pgx.Tx, version string, w io.Writer) error {
	schema, tables, err := catalog(ctx, tx)
	if err != nil {
		return err
	}
	out, err := archive.NewWriter(w, archive.Manifest{Schema: schema, Database: "postgres", Kedge: version, TakenAt: time.Now()})
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
func catalog(ctx context.Context, tx pgx.Tx) (schema int64, tables []archive.Table, err error) {
	if schema, err = newest(migrations); err != nil { // connect and Migrate have checked the version
		return 0, nil, err
	}
	byName := map[string]*archive.Table{}
	var order []string
	rows, err := tx.Query(ctx, `SELECT c.relname::text, a.attname::text, a.atttypid::regtype::text
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = current_schema::regnamespace AND c.relkind IN ('r', 'p')
			AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		ORDER BY c.relname, a.attnum`)
	if err != nil {
		return 0, nil, mapError(ctx, err, false)
	}
	var table, column, kind string
	_, err = pgx.ForEachRow(rows, []any{&table, &column, &kind}, func() error {
		if archive.Transient(table) {
			return nil
		}
		if byName[table] == nil {
			byName[table] = &archive.Table{Name: table}
			order = append(order, table)
		}
		known, ok := kinds[kind]
		if !ok {
			return fmt.Errorf("column %s.%s has type %s, which archives do not support", table, column, kind)
		}
		byName[table].Columns = append(byName[table].Columns, archive.Column{Name: column, Kind: known})
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("listing tables: %w", err)
	}
	if err := addParents(ctx, tx, byName); err != nil {
		return 0, nil, err
	}
	for _, name := range order {
		tables = append(tables, *byName[name])
	}
	tables, err = archive.Order(tables)
	return schema, tables, err
}

var kinds = map[string]archive.Kind{
	"bigint": archive.Int, "integer": archive.Int, "smallint": archive.Int, "boolean": archive.Bool, "text": archive.Text, "bytea": archive.Bytes,
}

func addParents(ctx context.Context, tx pgx.Tx, tables map[string]*archive.Table) error {
	rows, err := tx.Query(ctx, `SELECT c.relname::text, p.relname::text
		FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class p ON p.oid = f.confrelid
		WHERE f.contype = 'f' AND c.relnamespace = current_schema::regnamespace`)
	if err != nil {
		return mapError(ctx, err, false)
	}
	var child, parent string
	_, err = pgx.ForEachRow(rows, []any{&child, &parent}, func() error {
		if t := tables[child]; t != nil {
			t.Parents = append(t.Parents, parent)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the references of tables: %w", mapError(ctx, err, false))
	}
	return nil
}

func dumpTable(ctx context.Context, tx pgx.Tx, t archive.Table, out *archive.Writer) error {
	if err := out.Table(t); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, "SELECT "+list(t)+" FROM "+pgx.Identifier{t.Name}.Sanitize())
	if err != nil {
		return mapError(ctx, err, false)
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return mapError(ctx, err, false)
		}
		if err := out.Row(values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return mapError(ctx, err, false)
	}
	return nil
}

func list(t archive.Table) string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = pgx.Identifier{c.Name}.Sanitize()
	}
	return strings.Join(names, ", ")
}

// Restore inserts a backup into a migrated, empty database, completely or not at all, with the role that owns
// the tables. Afterwards, the epoch and the numbers of the outbox are higher than any that agents and readers
// have seen, because the backup is older than they are.
func Restore(ctx context.Context, cfg MigrateConfig, from io.Reader) error {
	r, err := archive.NewReader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := Migrate(ctx, cfg); err != nil {
		return err
	}
	parsed, err := parse(cfg.URL)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, parsed.ConnConfig)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", unreachable(ctx, err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return restore(ctx, tx, r) })
	if err != nil && !errors.Is(err, archive.ErrNotEmpty) {
		return fmt.Errorf("restoring the database: %w", err)
	}
	return err
}
