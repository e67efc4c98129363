package sqlite

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func TestReopeningKeepsEverything(t *testing.T) {
	t.Parallel()
	// Characters that mean something in a URI are ordinary ones in a path.
	path := filepath.Join(t.TempDir(), "data dir", "a?b#c%20&d", "kedge.db")
	want := fleet.Tenant{ID: fleet.NewTenantID(), Name: "kept", CreatedAt: time.UnixMicro(1_700_000_000_123_456).UTC()}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	first, err := Open(t.Context(), Config{Path: path, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	err = first.Update(t.Context(), func(tx store.Tx) error { return tx.Tenants().Create(t.Context(), want) })
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if log.Len() == 0 {
		t.Fatal("the first start should have migrated")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*-wal")); len(left) > 0 {
		t.Errorf("a store that was closed should leave one file, not also %v", left)
	}
	log.Reset()
	second, err := Open(t.Context(), Config{Path: path, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if log.Len() != 0 {
		t.Errorf("the second start ran migrations: %s", log.String())
	}
	var got fleet.Tenant
	err = second.View(t.Context(), func(tx store.Tx) (err error) {
		got, err = tx.Tenants().ByName(t.Context(), "kept")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tenant differs (-want +got):\n%s", diff)
	}
}

func TestTheFileIsItsOwnersOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kedge.db")
	s := open(t, path)
	err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Settings().SetEpoch(t.Context(), 2) })
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of %q: got %o, want 600", path+suffix, got)
		}
	}
}

func TestConnectionsAreSetUp(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "kedge.db"))
	pragmas := []struct{ name, writer, reader string }{
		{"journal_mode", "wal", "wal"},
		{"synchronous", "1", "1"},
		{"busy_timeout", "5000", "5000"},
		{"foreign_keys", "1", "0"},
		{"query_only", "0", "1"},
	}
	for _, p := range pragmas {
		var writer, reader string
		if err := s.writerDB.QueryRowContext(t.Context(), "PRAGMA "+p.name).Scan(&writer); err != nil {
			t.Fatal(err)
		}
		if err := s.readerDB.QueryRowContext(t.Context(), "PRAGMA "+p.name).Scan(&reader); err != nil {
			t.Fatal(err)
		}
		if writer != p.writer || reader != p.reader {
			t.Errorf("%s: got %s and %s, want %s for writing and %s for reading", p.name, writer, reader, p.writer, p.reader)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is not a database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	s := open(t, newer)
	if _, err := s.writerDB.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ reason, path, want string }{
		{"a program must not write to an unknown schema", newer, "older than the database"},
		{"another file must not be overwritten", garbage, "not a database"},
		{"a folder is no file", dir, "is a directory"},
		{"no path is a mistake, not a database in memory", "", "no path"},
	}
	for _, c := range cases {
		got, err := Open(t.Context(), Config{Path: c.path})
		if err == nil {
			_ = got.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want an error with %q", c.reason, err, c.want)
		}
	}
}

func TestCheckVersionText(t *testing.T) {
	t.Parallel()
	cases := []struct {
		text string
		ok   bool
	}{
		{"3.51.3", true}, {"3.53.4", true}, {"3.52.0", true}, {"4.0.0", true},
		{"3.51.2", false}, {"3.7.99", false}, {"2.99.99", false}, {"new", false},
	}
	for _, c := range cases {
		if err := checkVersionText(c.text); (err == nil) != c.ok {
			t.Errorf("SQLite %s: got error %v, want accepted: %v", c.text, err, c.ok)
		}
	}
}

func TestAMigrationThatOrphansRowsIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kedge.db")
	if _, err := prepareFile(path); err != nil {
		t.Fatal(err)
	}
	db, err := openDB(path, migrating)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = migrateFrom(t.Context(), db, fstest.MapFS{"00001_bad.sql": {Data: []byte(`-- +goose Up
		CREATE TABLE parent (id INTEGER PRIMARY KEY);
		CREATE TABLE child (id INTEGER REFERENCES parent (id));
		INSERT INTO child VALUES (7);`)}}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "rows of child refer to rows of parent") {
		t.Errorf("got error %v, want an error with both tables", err)
	}
}
