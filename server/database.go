package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kedge-dev/kedge/internal/version"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// DatabaseConfig selects a database.
type DatabaseConfig struct {
	// DataDir is the folder of the SQLite file if Database has no path.
	DataDir string
	// Database is "" or "sqlite" for a file in DataDir, the path of such a file, or the postgres:// URL
	// of a PostgreSQL database.
	Database string
	Log      *slog.Logger
}

// database is a parsed DatabaseConfig.
type database struct {
	url  string // of PostgreSQL; "" for SQLite
	path string // of the SQLite file
	dirs []string
	log  *slog.Logger
}

// shared reports whether other servers may use it at the same time.
func (d database) shared() bool { return d.url != "" }

func (c DatabaseConfig) resolve() (database, error) {
	d := database{log: c.Log}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	scheme, _, isURL := strings.Cut(c.Database, "://")
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		if _, err := url.Parse(c.Database); err != nil {
			return d, errors.New("the URL of the database is not valid") // it may contain a password
		}
		d.url = c.Database
		return d, nil
	case isURL:
		return d, fmt.Errorf("database type %q is not supported: use a path, or postgres://…", scheme)
	case c.Database == "" || c.Database == "sqlite":
		d.path = filepath.Join(c.DataDir, "kedge.db")
	default:
		d.path = c.Database
	}
	if c.DataDir == "" && !filepath.IsAbs(d.path) && !strings.Contains(d.path, string(filepath.Separator)) {
		return d, errors.New("the data directory is missing: use --data-dir")
	}
	d.dirs = []string{filepath.Dir(d.path)}
	if c.DataDir != "" && filepath.Clean(c.DataDir) != d.dirs[0] {
		d.dirs = append(d.dirs, c.DataDir)
	}
	return d, nil
}

// lock excludes a second server from a SQLite database. A PostgreSQL database can be shared.
func (d database) lock() (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	for _, dir := range d.dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			unlock()
			return nil, fmt.Errorf("making the data directory: %w", err)
		}
		u, err := lockDir(dir)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, u)
	}
	return unlock, nil
}

func (d database) open(ctx context.Context) (store.Store, error) {
	if d.url != "" {
		return postgres.Open(ctx, postgres.Config{URL: d.url, Log: d.log})
	}
	return sqlite.Open(ctx, sqlite.Config{Path: d.path, Log: d.log})
}

// Migrate migrates the schema. For PostgreSQL, use the URL of the role that owns the tables, which is not the
// server's; a server with SQLite migrates at its start.
func Migrate(ctx context.Context, cfg DatabaseConfig) error {
	d, err := cfg.resolve()
	if err != nil {
		return err
	}
	if d.url != "" {
		return postgres.Migrate(ctx, postgres.MigrateConfig{URL: d.url, Log: d.log})
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	st, err := d.open(ctx)
	if err != nil {
		return err
	}
	return st.Close()
}

// Backup writes a consistent copy of the database to w while servers use it. Use the URL of the server.
func Backup(ctx context.Context, cfg DatabaseConfig, w io.Writer) error {
	d, err := cfg.resolve()
	if err != nil {
		return err
	}
	if d.url != "" {
		return postgres.Backup(ctx, postgres.Config{URL: d.url, Log: d.log}, version.String(), w)
	}
	if _, err := os.Stat(d.path); err != nil {
		return fmt.Errorf("checking the database: %w", err)
	}
	return sqlite.Backup(ctx, sqlite.Config{Path: d.path, Log: d.log}, version.String(), w)
}

// Restore restores a backup, of either kind of database, into an empty one. For PostgreSQL, use the URL of the
// role that owns the tables.
func Restore(ctx context.Context, cfg DatabaseConfig, r io.Reader) error {
	d, err := cfg.resolve()
	if err != nil {
		return err
	}
	if d.url != "" {
		return postgres.Restore(ctx, postgres.MigrateConfig{URL: d.url, Log: d.log}, r)
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return sqlite.Restore(ctx, sqlite.Config{Path: d.path, Log: d.log}, r)
}
