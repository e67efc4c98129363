package postgres_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	testpostgres "github.com/kedge-dev/kedge/internal/testkit/postgres"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

func as(t *testing.T, dsn, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

func run(t *testing.T, conn *pgx.Conn, queries ...string) {
	t.Helper()
	for _, query := range queries {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

// covers: invariant 7
// defect: B17
func TestOpenRefusesARoleWithoutRowSecurity(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	cases := []struct {
		reason, role string
		make         string // attributes
		grant        string // to it
		want, mend   string
	}{
		{"a superuser sees everything", "test_super", "SUPERUSER", "kedge_app, kedge_fleet", "is a superuser", "CREATE ROLE kedge_server"},
		{"BYPASSRLS sees everything", "test_bypass", "BYPASSRLS NOINHERIT", "kedge_app, kedge_fleet", "has BYPASSRLS", "NOBYPASSRLS"},
		{"the owner can disable row-level security", pgtest.Owner, "", "", "owns table", "CREATE ROLE kedge_server"},
		{"and so can a role that may become the owner", "test_member", "NOINHERIT", "kedge_app, kedge_fleet, " + pgtest.Owner, "can become its owner", "CREATE ROLE kedge_server"},
		{"a privilege must be entered, not inherited", "test_inherits", "INHERIT", "kedge_app, kedge_fleet", "always has the privileges", "INHERIT"},
		{"without roles to enter, nothing is accessible", "test_stranger", "NOINHERIT", "", "cannot enter kedge_app", "GRANT kedge_app TO"},
		{"one role is not enough", "test_half", "NOINHERIT", "kedge_app", "cannot enter kedge_fleet", "GRANT kedge_fleet TO"},
	}
	conn := admin(t, d)
	for _, c := range cases {
		if c.make != "" {
			run(t, conn, "CREATE ROLE "+c.role+" LOGIN "+c.make)
		}
		if c.grant != "" {
			run(t, conn, "GRANT "+c.grant+" TO "+c.role)
		}
		s, err := postgres.Open(t.Context(), postgres.Config{URL: as(t, d.Admin, c.role)})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.mend) {
			t.Errorf("%s: got error %v, want an error with %q and the remedy: %q", c.reason, err, c.want, c.mend)
		}
	}
	pgtest.Open(t, d) // the role that is as it should be
}

func TestOpenRefusesASchemaThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	cases := []struct{ reason, spoil, want string }{
		{"a program must not write to an unknown schema",
			`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`, "older than the database"},
		{"nor to an older one", `DELETE FROM goose_db_version WHERE version_id > 0`, "migrate the database first"},
		{"a table without row-level security", `ALTER TABLE agents NO FORCE ROW LEVEL SECURITY`, "table agents has a tenant_id but no forced"},
		{"an added table", `CREATE TABLE extra (tenant_id text)`, "table extra has a tenant_id but no forced"},
	}
	for _, c := range cases {
		d := pg.Database(t)
		run(t, admin(t, d), c.spoil)
		s, err := postgres.Open(t.Context(), postgres.Config{URL: d.URL})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want an error with %q", c.reason, err, c.want)
		}
	}
	empty := pg.Empty(t)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: empty.URL}); err == nil || !strings.Contains(err.Error(), "migrated") {
		t.Errorf("an empty database: got error %v, want an error that it was not migrated", err)
	}
	for text, want := range map[string]string{
		"": "no connection string", "postgres://x:secret@[": "is not valid",
		"postgres://x:secret@127.0.0.1:1/x?connect_timeout=1": store.ErrUnavailable.Error(),
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: text})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("connecting to %q: got error %v, want an error with %q and no secret", text, err, want)
		}
	}
}

func TestReplicasMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	d := pg.Empty(t)
	var mu sync.Mutex
	var log bytes.Buffer
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var own bytes.Buffer
			err := postgres.Migrate(t.Context(), postgres.MigrateConfig{URL: d.Owner, Log: slog.New(slog.NewTextHandler(&own, nil))})
			if err != nil {
				t.Errorf("migrating: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			log.Write(own.Bytes())
		})
	}
	wg.Wait()
	if n := strings.Count(log.String(), "version=1"); n != 1 {
		t.Errorf("the first migration was applied %d times, want once:\n%s", n, log.String())
	}
	pgtest.Open(t, d)
	conn := admin(t, d)
	run(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
	err := postgres.Migrate(t.Context(), postgres.MigrateConfig{URL: d.Owner})
	if err == nil || !strings.Contains(err.Error(), "older than the database") {
		t.Errorf("a newer schema: got error %v, want an error about it", err)
	}
}

// TestMigrateMakesRoles has its own server, because roles belong to all databases of a server.
func TestMigrateMakesRoles(t *testing.T) {
	t.Parallel()
	var own testpostgres.Server
	dsn := own.Database(t)
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	run(t, conn, "CREATE ROLE test_owner LOGIN", "ALTER DATABASE "+conn.Config().Database+" OWNER TO test_owner")
	migrate := func() error {
		return postgres.Migrate(t.Context(), postgres.MigrateConfig{URL: as(t, dsn, "test_owner")})
	}
	err = migrate()
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "CREATE ROLE kedge_app NOLOGIN") {
		t.Errorf("an owner that may not create roles: got error %v, want an error with the statement to run", err)
	}
	run(t, conn, "ALTER ROLE test_owner CREATEROLE")
	if err := migrate(); err != nil {
		t.Errorf("an owner that may: %v", err)
	}
	run(t, conn, "ALTER ROLE test_owner NOCREATEROLE")
	if err := migrate(); err != nil {
		t.Errorf("when the roles are there: %v", err)
	}
	run(t, conn, "CREATE ROLE kedge_server LOGIN NOINHERIT", "GRANT kedge_app, kedge_fleet TO kedge_server")
	s, err := postgres.Open(t.Context(), postgres.Config{URL: as(t, dsn, "kedge_server")})
	if err != nil {
		t.Fatalf("as the role that the error of Open proposes: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
