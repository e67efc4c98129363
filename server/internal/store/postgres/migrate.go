package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	gooselock "github.com/pressly/goose/v3/lock"
)

// The migrations are append-only: a file that was released is never edited.
//
//go:embed migrations/*.sql
var migrations embed.FS

// One who migrates waits for another for five minutes and asks every second.
const (
	migratePeriod   = 1
	migratePatience = 300
)

// MigrateConfig says which database to prepare.
type MigrateConfig struct {
	// URL is the connection string of the role that owns the tables, or will. It must be another
	// than the server's. To create kedge_app and kedge_fleet it needs CREATEROLE; it does not when
	// they exist.
	URL string
	// Log hears of migrations. Nil discards.
	Log *slog.Logger
}

// Migrate makes the roles that the server enters and brings the schema up to date. Several
// processes may do so at once.
func Migrate(ctx context.Context, cfg MigrateConfig) (err error) {
	parsed, err := parse(cfg.URL)
	if err != nil {
		return err
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	db := stdlib.OpenDB(*parsed.ConnConfig)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkVersion(ctx, db); err != nil {
		return err
	}
	for _, role := range []string{appRole, fleetRole} {
		if err := ensureRole(ctx, db, role); err != nil {
			return err
		}
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	return migrateFrom(ctx, db, files, log)
}

func checkVersion(ctx context.Context, db *sql.DB) error {
	var number int
	var text string
	row := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version')`)
	if err := row.Scan(&number, &text); err != nil {
		return fmt.Errorf("connecting to the database: %w", unreachable(ctx, err))
	}
	if number < minVersion {
		return fmt.Errorf("PostgreSQL %s is too old; at least %d is needed", text, minVersion/10000)
	}
	return nil
}

// ensureRole makes a role that others enter. It is a role of the whole server, not of the database,
// so another migration may make it at the same time.
func ensureRole(ctx context.Context, db *sql.DB, role string) error {
	var exists bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists)
	if err == nil && !exists {
		_, err = db.ExecContext(ctx, "CREATE ROLE "+role+" NOLOGIN")
	}
	var e *pgconn.PgError
	if err == nil || errors.As(err, &e) && (e.Code == "42710" || e.Code == "23505") { // made meanwhile
		return nil
	}
	return fmt.Errorf("creating role %s: %w; somebody who may has to run: CREATE ROLE %s NOLOGIN; CREATE ROLE %s NOLOGIN",
		role, mapError(ctx, err, false), appRole, fleetRole)
}

func migrateFrom(ctx context.Context, db *sql.DB, files fs.FS, log *slog.Logger) error {
	locker, err := gooselock.NewPostgresSessionLocker(gooselock.WithLockTimeout(migratePeriod, migratePatience))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrating: %v", err) //nolint:errorlint // no error of a database driver leaves the store
	}
	for _, r := range results {
		log.InfoContext(ctx, "applied database migration", "version", r.Source.Version, "duration", r.Duration)
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading the version of the schema: %w", mapError(ctx, err, false))
	}
	if current > target {
		return olderThan(current, target)
	}
	return nil
}

func olderThan(current, known int64) error {
	return fmt.Errorf("the schema is of version %d, this program knows versions up to %d: it is older than the database",
		current, known)
}
