package e2e_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/postgres"
)

// pg is the PostgreSQL that tests share. It ends with this process.
var pg postgres.Server

// testDatabase is a PostgreSQL database with the roles of the operations guide: one owns the schema,
// the server logs in as another.
type testDatabase struct {
	admin      string // URL of a superuser
	owner, url string
	keys       string // key file of the servers that share it
}

// migrated is a migrated database; the databases of tests are copies of it.
var migrated struct {
	sync.Mutex
	admin string
}

// newDatabase makes a database with its schema, on the shared PostgreSQL.
func newDatabase(tb testing.TB) *testDatabase {
	tb.Helper()
	skipShort(tb)
	migrated.Lock()
	defer migrated.Unlock()
	if migrated.admin == "" {
		admin := pg.Lasting(tb)
		furnish(tb, admin)
		migrated.admin = admin
	}
	return empty(tb, pg.Copy(tb, migrated.admin))
}

func skipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs PostgreSQL, which -short excludes")
	}
}

// furnish creates roles and schema in an empty database like an operator.
func furnish(tb testing.TB, admin string) *testDatabase {
	tb.Helper()
	d := empty(tb, admin)
	if err := rig.Admin(tb.Context(), binary(tb, "kedge-server"), "migrate", "--database", d.owner); err != nil {
		tb.Fatal(err)
	}
	return d
}

// empty is furnish without making the schema.
func empty(tb testing.TB, admin string) *testDatabase {
	tb.Helper()
	d := &testDatabase{admin: admin, owner: as(tb, admin, "kedge_owner"), url: as(tb, admin, "kedge_server"), keys: filepath.Join(tb.TempDir(), "keys")}
	conn, err := pgx.Connect(tb.Context(), admin)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(tb.Context()))
	for role, attributes := range map[string]string{
		"kedge_app": "NOLOGIN", "kedge_fleet": "NOLOGIN", "kedge_owner": "LOGIN", "kedge_server": "LOGIN NOINHERIT",
	} {
		query := fmt.Sprintf(`DO $$ BEGIN CREATE ROLE %s %s; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`, role, attributes)
		if _, err := conn.Exec(tb.Context(), query); err != nil {
			tb.Fatal(err)
		}
	}
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	for _, query := range []string{
		"GRANT kedge_app, kedge_fleet TO kedge_server",
		"ALTER DATABASE " + name + " OWNER TO kedge_owner",
		// The server of these tests forgets the newest commits when it crashes; one in earnest does not.
		"ALTER DATABASE " + name + " SET synchronous_commit = on",
	} {
		if _, err := conn.Exec(tb.Context(), query); err != nil {
			tb.Fatal(err)
		}
	}
	if err := rig.NewKeyFile(tb.Context(), binary(tb, "kedge-server"), d.keys); err != nil {
		tb.Fatal(err)
	}
	return d
}

func as(tb testing.TB, admin, role string) string {
	tb.Helper()
	u, err := url.Parse(admin)
	if err != nil {
		tb.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// crash kills all processes of the PostgreSQL server, like a crash, and restarts it. Use it only with a
// separate server.
func (d *testDatabase) crash(tb testing.TB) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), d.admin)
	if err != nil {
		tb.Fatal(err)
	}
	var data, programs string
	err = conn.QueryRow(tb.Context(), "SELECT current_setting('data_directory'), (SELECT setting FROM pg_config WHERE name = 'BINDIR')").Scan(&data, &programs)
	if err != nil {
		tb.Fatal(err)
	}
	_ = conn.Close(tb.Context())
	info, err := os.Stat(data)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "pg_ctl"), "-D", data, "-w", "-m", "immediate", "-l", filepath.Join(data, "again.log"), "restart")
	cmd.Dir = data
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if err := cmd.Run(); err != nil {
		tb.Fatalf("restarting PostgreSQL: %v", err)
	}
}

// onBoth runs a test on a server of either database.
func onBoth(t *testing.T, test func(t *testing.T, s *testServer)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, startServer(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, startServer(t, newDatabase(t).args()...))
	})
}

// again crashes and restarts the server. With PostgreSQL it is a stop, after which others need not wait before
// they take over; tests with several replicas cover a kill.
func (s *testServer) again(tb testing.TB) {
	tb.Helper()
	if slices.Contains(s.args, "--database") {
		if err := s.Stop(); err != nil {
			tb.Fatal(err)
		}
	} else {
		s.Kill()
	}
	s.restart(tb)
}

// args are the flags of a server on this database.
func (d *testDatabase) args() []string { return []string{"--database", d.url, "--key-file", d.keys} }
