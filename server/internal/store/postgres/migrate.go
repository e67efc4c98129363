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

// The migrations are append-only: a released file is never edited.
//
//go:embed migrations/*.sql
var migrations embed.FS

// A migration waits for another one for up to five minutes and checks every second.
const (
	migratePeriod   = 1
	migratePatience = 300
)

// MigrateConfig configures a migration.
type MigrateConfig struct {
	// URL is the connection string of the role that owns the tables, or will own them. It must differ from the
	// server's role. It needs CREATEROLE to create kedge_app and kedge_fleet, unless they exist.
	URL string
	// Log logs migrations. Nil discards.
	Log *slog.Logger
}

// Migrate creates the roles that the server enters and migrates the schema. Several processes may do so
// concurrently.
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
		return fmt.Errorf("PostgreSQL %s is too old: at least version %d is required", text, minVersion/10000)
	}
	return nil
}

// ensureRole creates a role that others enter. Roles belong to the whole server, not to the database, so
// another migration may create it at the same time.
func ensureRole(ctx context.Context, db *sql.DB, role string) error {
	var exists bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, role).Scan(&exists)
	if err == nil && !exists {
		_, err = db.ExecContext(ctx, "CREATE ROLE "+role+" NOLOGIN")
	}
	var e *pgconn.PgError
	if err == nil || errors.As(err, &e) && (e.Code == "42710" || e.Code == "23505") { // created concurrently
		return nil
	}
	return fmt.Errorf("creating role %s: %w; run as a role with CREATEROLE: CREATE ROLE %s NOLOGIN; CREATE ROLE %s NOLOGIN",
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
	return fmt.Errorf("the schema has version %d, but this program supports versions up to %d: the program is older than the database",
		current, known)
}
