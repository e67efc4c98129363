package faults_test

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // reads the database of a stopped server
	_ "modernc.org/sqlite"             // reads the database of a stopped server
)

// database is the database of a server.
type database interface {
	serve() []string // flags of kedge-server
	open() (*sql.DB, error)
}

// newDatabase creates an empty database with its schema. dir is the folder of the server.
type newDatabase func(tb testing.TB, dir string) database

// sqliteFile is the path of a SQLite database.
type sqliteFile string

func (f sqliteFile) serve() []string        { return []string{"--database", string(f)} }
func (f sqliteFile) open() (*sql.DB, error) { return sql.Open("sqlite", string(f)) }

func newSQLite(_ testing.TB, dir string) database { return sqliteFile(filepath.Join(dir, "kedge.db")) }

// postgresDatabase has one role that owns the tables and another for the server, to which row-level security applies.
type postgresDatabase struct{ admin, loginFile string }

func (d postgresDatabase) serve() []string        { return []string{"--database-url-file", d.loginFile} }
func (d postgresDatabase) open() (*sql.DB, error) { return sql.Open("pgx", d.admin) }

const (
	ownerRole = "faults_owner"
	loginRole = "faults_server"
)

func newPostgres(tb testing.TB, dir string) database {
	tb.Helper()
	admin := pg.Database(tb)
	makeRoles(tb, admin)
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
	d := postgresDatabase{admin: admin, loginFile: as(loginRole)}
	runServer(tb, binary(tb, "kedge-server"), "migrate", "--data-dir", dir, "--database-url-file", as(ownerRole))
	return d
}

// makeRoles creates the roles of a server and sets the owner of the database.
func makeRoles(tb testing.TB, admin string) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), admin)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(tb.Context()) }()
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	var statements []string
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
