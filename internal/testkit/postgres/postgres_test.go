package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

var pg Server

// victimEnv makes the test binary a process that holds a server until it is killed.
const victimEnv = "KEDGE_TEST_POSTGRES_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		holdServer()
	}
	os.Exit(pg.Main(m))
}

func holdServer() {
	k, err := hireKeeper(nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(k.dsn("postgres"))
	fmt.Println(k.dir)
	select {}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), query); err != nil {
		t.Fatalf("running %q: %v", query, err)
	}
}

func TestDatabasesAreIndependent(t *testing.T) {
	t.Parallel()
	a, b := connect(t, pg.Database(t)), connect(t, pg.Database(t))
	run(t, a, "CREATE TABLE things (name text)")
	run(t, b, "CREATE TABLE things (name text)")
	run(t, a, "INSERT INTO things VALUES ('only here')")
	for conn, want := range map[*pgx.Conn]int{a: 1, b: 0} {
		var got int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("rows: got %d, want %d", got, want)
		}
	}
}

func TestNotifyStaysInItsDatabase(t *testing.T) {
	t.Parallel()
	dsn := pg.Database(t)
	listener, sender, stranger := connect(t, dsn), connect(t, dsn), connect(t, pg.Database(t))
	run(t, listener, "LISTEN news")
	run(t, stranger, "NOTIFY news, 'from another database'")
	run(t, sender, "NOTIFY news, 'hello'")
	got, err := listener.WaitForNotification(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Channel != "news" || got.Payload != "hello" {
		t.Errorf("got %q on %q, want hello on news", got.Payload, got.Channel)
	}
}

func TestDatabasesAreDroppedWithTheirTest(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("uses one", func(t *testing.T) {
		dsn = pg.Database(t)
		conn, err := pgx.Connect(t.Context(), dsn) // left open: it must not block the cleanup
		if err != nil {
			t.Fatal(err)
		}
		run(t, conn, "CREATE TABLE things (name text)")
	})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err == nil {
		_ = conn.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("connecting after the test: got error %v, want one that says that it does not exist", err)
	}
}

func TestCopiesAreIndependentOfWhatTheyCopy(t *testing.T) {
	t.Parallel()
	var original string
	t.Run("makes one", func(t *testing.T) {
		original = pg.Lasting(t)
		conn, err := pgx.Connect(t.Context(), original)
		if err != nil {
			t.Fatal(err)
		}
		run(t, conn, "CREATE TABLE things (name text)")
		run(t, conn, "INSERT INTO things VALUES ('kept')")
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	first, second := connect(t, pg.Copy(t, original)), connect(t, pg.Copy(t, original))
	run(t, first, "DELETE FROM things")
	var n int
	if err := second.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n); err != nil || n != 1 {
		t.Errorf("a copy of which another was emptied: got %d rows and error %v, want 1", n, err)
	}
}

func TestTheServerIsReachedOnLoopback(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(pg.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Host = "127.0.0.1"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var addresses string
	if err := conn.QueryRow(t.Context(), "SHOW listen_addresses").Scan(&addresses); err != nil || addresses != "127.0.0.1" {
		t.Errorf("listen_addresses: got %q and error %v, want only loopback", addresses, err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	var own Server
	if err := own.Stop(); err != nil {
		t.Fatalf("stopping a server that never started: %v", err)
	}
	dsn := own.Database(t)
	dir := own.keeper.dir
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder of the server: got error %v, want it gone", err)
	}
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the server still answers")
	}
}

func TestARestartKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	var own Server
	dsn := own.Database(t)
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	before := connect(t, dsn)
	run(t, before, "CREATE TABLE things (name text)")
	for range 2 {
		own.Restart(t)
		if _, err := before.Exec(t.Context(), "SELECT 1"); err == nil {
			t.Error("a connection has outlived the server")
		}
		run(t, connect(t, dsn), "INSERT INTO things VALUES ('kept')")
		own.Database(t) // the server still makes databases
	}
	var n int
	if err := connect(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d rows and error %v, want 2", n, err)
	}
}

func TestTheServerDiesWithAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	// Keeper and server inherit the pipe, so it ends when the last of them ends.
	gone, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	cmd.ExtraFiles = []*os.File{inherited}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = inherited.Close()
	lines := bufio.NewScanner(out)
	lines.Scan()
	conn := connect(t, lines.Text())
	run(t, conn, "SELECT 1")
	lines.Scan()
	dir := lines.Text()

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := conn.WaitForNotification(t.Context()); err == nil {
		t.Error("the connection should have broken")
	}
	if _, err := io.ReadAll(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder of the server: got error %v, want it gone", err)
	}
}

func TestFindPrograms(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	install := func(dir string, programs ...string) {
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []string{"initdb", "pg_ctl", "postgres"}
	install("debian/9/bin", all...)
	install("debian/14/bin", all...)
	install("debian/15/bin", all...)
	install("debian/17/bin", "psql") // a client only
	install("debian/old/bin", all...)
	install("path", all...)
	onPath := func(name string) (string, error) { return filepath.Join(root, "path", name), nil }
	notOnPath := func(string) (string, error) { return "", exec.ErrNotFound }
	cases := []struct {
		reason, glob string
		look         func(string) (string, error)
		want         string
	}{
		{"the highest number is used, not the first or last word", "debian/*/bin", onPath, "debian/15/bin"},
		{"without a server package the PATH decides", "debian/17/bin", onPath, "path"},
		{"without both, the error names the package to install", "nowhere/*", notOnPath, ""},
	}
	for _, c := range cases {
		got, err := findPrograms(filepath.Join(root, c.glob), c.look)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") {
				t.Errorf("%s: got %q and error %v", c.reason, got, err)
			}
			continue
		}
		if err != nil || got != filepath.Join(root, c.want) {
			t.Errorf("%s: got %q and error %v, want %q", c.reason, got, err, c.want)
		}
	}
}
