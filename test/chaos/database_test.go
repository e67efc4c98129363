package chaos_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// database is the database of a server. Its flags are those of kedge-server.
type database interface {
	serve() []string   // to use it, and to back it up
	restore() []string // to put a backup into it
}

// sqliteFile is the path of a SQLite database.
type sqliteFile string

func (f sqliteFile) serve() []string   { return []string{"--database", string(f)} }
func (f sqliteFile) restore() []string { return f.serve() }

// postgresDatabase has one role that owns the tables and another for the login of the server, to which
// row-level security applies.
type postgresDatabase struct{ loginFile, ownerFile string }

func (d postgresDatabase) serve() []string   { return []string{"--database-url-file", d.loginFile} }
func (d postgresDatabase) restore() []string { return []string{"--database-url-file", d.ownerFile} }

// newDatabase creates an empty database with its schema.
type newDatabase func(tb testing.TB, binary, dir string) database

func newSQLite(tb testing.TB, _, dir string) database {
	tb.Helper()
	dir, err := os.MkdirTemp(dir, "db-") //nolint:usetesting // it goes with the folder of the run, which is removed between runs
	if err != nil {
		tb.Fatal(err)
	}
	return sqliteFile(filepath.Join(dir, "kedge.db"))
}

func newPostgres(tb testing.TB, binary, dir string) database {
	tb.Helper()
	admin := pg.Database(tb)
	makeRoles(tb, admin)
	dir, err := os.MkdirTemp(dir, "db-") //nolint:usetesting // it goes with the folder of the run, which is removed between runs
	if err != nil {
		tb.Fatal(err)
	}
	as := func(role string) string {
		u, err := url.Parse(admin)
		if err != nil {
			tb.Fatal(err)
		}
		u.User = url.User(role)
		file := filepath.Join(dir, role)
		if err := os.WriteFile(file, []byte(u.String()), 0o600); err != nil {
			tb.Fatal(err)
		}
		return file
	}
	d := postgresDatabase{loginFile: as(loginRole), ownerFile: as(ownerRole)}
	runServer(tb, binary, append([]string{"migrate", "--data-dir", dir}, d.restore()...)...)
	return d
}

const (
	ownerRole = "chaos_owner"
	loginRole = "chaos_server"
)

// makeRoles creates the roles of a server and sets the owner of the database.
func makeRoles(tb testing.TB, admin string) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), admin)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(tb.Context()) }()
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	statements := []string{}
	for _, role := range []string{"kedge_app NOLOGIN", "kedge_fleet NOLOGIN", ownerRole + " LOGIN CREATEROLE", loginRole + " LOGIN NOINHERIT"} {
		// Roles are shared by the databases of all tests.
		statements = append(statements, "DO $$ BEGIN CREATE ROLE "+role+"; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
	}
	statements = append(statements, "GRANT kedge_app, kedge_fleet TO "+loginRole, "ALTER DATABASE "+name+" OWNER TO "+ownerRole)
	for _, statement := range statements {
		if _, err := conn.Exec(tb.Context(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// runServer runs a command of kedge-server that comes to an end.
func runServer(tb testing.TB, binary string, args ...string) {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), binary, args...).CombinedOutput(); err != nil {
		tb.Fatal(fmt.Errorf("kedge-server %v: %w\n%s", args, err, out))
	}
}
