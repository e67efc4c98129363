// Package pgtest provides a PostgreSQL store for tests with the same roles as in production: one role owns the
// schema, and the connection string is that of another role, to which row-level security applies.
//
//	var (
//		server postgres.Server // of package testkit/postgres
//		pg     = pgtest.Template{Server: &server}
//	)
//
//	func TestMain(m *testing.M) { os.Exit(server.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		s := pg.Open(t)
//		…
//	}
package pgtest

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
)

// The roles that own the schema and run the server.
const (
	Owner = "kedge_owner"
	Login = "kedge_server"
)

// Template creates migrated databases by copying one. It is safe for concurrent use and must not be copied.
type Template struct {
	Server *testpostgres.Server

	mu     sync.Mutex
	origin string
}

// Database is one migrated database.
type Database struct {
	Admin string // connection string of a superuser, for changes that bypass the store
	Owner string // of the role that owns the schema
	URL   string // of the server's login role
}

// Open opens a store on a new database and closes it at the end of the test.
func (p *Template) Open(t testing.TB) *postgres.Store {
	t.Helper()
	return Open(t, p.Database(t))
}

// Open opens a store on a database and closes it at the end of the test.
func Open(t testing.TB, d Database) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: d.URL})
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// Database returns a new, migrated, empty database.
func (p *Template) Database(t testing.TB) Database {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.origin == "" {
		p.prepareLocked(t)
	}
	return named(t, p.Server.Copy(t, p.origin))
}

// Copy returns a database with the same content. This one must have no connections.
func (d Database) Copy(t testing.TB, server *testpostgres.Server) Database {
	t.Helper()
	return named(t, server.Copy(t, d.Admin))
}

// Empty returns a new database that belongs to Owner and is not migrated. Login may enter the roles of the
// server as soon as they exist.
func (p *Template) Empty(t testing.TB) Database {
	t.Helper()
	d := named(t, p.Server.Database(t))
	furnish(t, d)
	return d
}

// furnish creates the roles and sets the owner of the database.
func furnish(t testing.TB, d Database) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for role, attributes := range map[string]string{
		"kedge_app": "NOLOGIN", "kedge_fleet": "NOLOGIN", Owner: "LOGIN CREATEROLE", Login: "LOGIN NOINHERIT",
	} {
		if err := ensureRole(t.Context(), conn, role, attributes); err != nil {
			t.Fatalf("creating role %s: %v", role, err)
		}
	}
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	for _, query := range []string{
		"GRANT kedge_app, kedge_fleet TO " + Login,
		"ALTER DATABASE " + database + " OWNER TO " + Owner,
	} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

func ensureRole(ctx context.Context, conn *pgx.Conn, role, attributes string) error {
	_, err := conn.Exec(ctx, `DO $$ BEGIN CREATE ROLE `+role+` `+attributes+`;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	return err
}

// prepareLocked creates the database that all others are copies of. It lasts as long as the server.
func (p *Template) prepareLocked(t testing.TB) {
	t.Helper()
	d := named(t, p.Server.Lasting(t))
	furnish(t, d)
	if err := postgres.Migrate(t.Context(), postgres.MigrateConfig{URL: d.Owner}); err != nil {
		t.Fatalf("migrating: %v", err)
	}
	p.origin = d.Admin
}

func named(t testing.TB, admin string) Database {
	t.Helper()
	as := func(role string) string {
		u, err := url.Parse(admin)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return u.String()
	}
	return Database{Admin: admin, Owner: as(Owner), URL: as(Login)}
}
