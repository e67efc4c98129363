package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// access is the purpose of a connection.
type access int

const (
	writing access = iota
	reading
	migrating
)

// minVersion is the first SQLite without the bug in which a WAL that is reset under two connections corrupts
// the database (3.7.0 to 3.51.2).
var minVersion = [3]int{3, 51, 3}

// prepareFile creates the database file and returns its absolute path. SQLite would create it readable by
// everyone; its other files inherit the mode.
func prepareFile(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolving %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return "", fmt.Errorf("creating the folder of the database: %w", err)
	}
	f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("creating the database: %w", err)
	}
	return abs, f.Close()
}

func openDB(path string, a access) (*sql.DB, error) {
	return sql.Open("sqlite", dsn(path, a))
}

func dsn(path string, a access) string {
	q := url.Values{
		"_busy_timeout": {"5000"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"NORMAL"},
		// A WAL that one huge transaction has grown is truncated to this size at the next reset.
		"_pragma": {"journal_size_limit(67108864)", "temp_store(memory)"},
	}
	switch a {
	case writing:
		q.Set("_foreign_keys", "on")
		q.Set("_txlock", "immediate")
	case reading:
		q.Set("_query_only", "on")
	case migrating:
		// A migration that rebuilds a table must not fire its cascades. PRAGMA foreign_keys
		// cannot be changed inside a transaction, so it is off for all of them, and the result
		// is checked.
		q.Set("_foreign_keys", "off")
		q.Set("_txlock", "immediate")
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	return u.String()
}

// checkVersion refuses a SQLite that is too old to be safe.
func checkVersion(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&text); err != nil {
		return fmt.Errorf("reading the version of SQLite: %w", err)
	}
	return checkVersionText(text)
}

func checkVersionText(text string) error {
	var v [3]int
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return fmt.Errorf("parsing the version of SQLite %q: %w", text, err)
	}
	for i := range v {
		if v[i] != minVersion[i] {
			if v[i] > minVersion[i] {
				return nil
			}
			return fmt.Errorf("SQLite %s can corrupt a database that is in use: at least version %d.%d.%d is required",
				text, minVersion[0], minVersion[1], minVersion[2])
		}
	}
	return nil
}
