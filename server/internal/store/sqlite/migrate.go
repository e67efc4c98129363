package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"
)

// The migrations are append-only: a released file is never edited.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate migrates the schema on a separate handle.
func migrate(ctx context.Context, path string, log *slog.Logger) (err error) {
	db, err := openDB(path, migrating)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := checkVersion(ctx, db); err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	return migrateFrom(ctx, db, files, log)
}

func migrateFrom(ctx context.Context, db *sql.DB, files fs.FS, log *slog.Logger) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading the version of the schema: %w", err)
	}
	if current > target {
		return fmt.Errorf("the schema has version %d, but this program supports versions up to %d: the program is older than the database",
			current, target)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return err
	}
	for _, r := range results {
		log.InfoContext(ctx, "applied database migration", "version", r.Source.Version, "duration", r.Duration)
	}
	if len(results) == 0 {
		return nil
	}
	return checkForeignKeys(ctx, db)
}

// checkForeignKeys finds rows that a migration has orphaned.
func checkForeignKeys(ctx context.Context, db *sql.DB) error {
	var table, parent string
	err := db.QueryRowContext(ctx, `SELECT "table", parent FROM pragma_foreign_key_check LIMIT 1`).Scan(&table, &parent)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("checking foreign keys: %w", err)
	}
	return fmt.Errorf("rows of %s refer to rows of %s that do not exist", table, parent)
}
