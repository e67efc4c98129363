package postgres

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// dropTimeout limits the cleanup after a test, whose context has ended by then.
const dropTimeout = 30 * time.Second

// Server is a PostgreSQL server that starts on first use. The zero value is ready. It is safe for
// concurrent use and must not be copied.
type Server struct {
	mu      sync.Mutex
	started bool
	err     error // why it could not be started; there is no second attempt
	keeper  *keeper
	admin   *pgx.Conn
	count   int
}

// Main runs the tests of a package, stops the server if any of them started it, and returns the
// exit code.
func (s *Server) Main(m *testing.M) int {
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Database returns the connection string of a new, empty database, which is dropped at the end of the test
// together with its connections. The user is a superuser. The test fails if there is no server.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	// template0 and not template1: it accepts no connections, which would block the copy.
	return s.passing(t, "template0")
}

// Lasting is Database for a database that stays until the server stops, for copies by other tests.
func (s *Server) Lasting(t testing.TB) string {
	t.Helper()
	return s.keeper.dsn(s.create(t, "template0"))
}

// Copy returns the connection string of a copy of another database, which must have no connections. It is
// dropped at the end of the test.
func (s *Server) Copy(t testing.TB, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("copying a database: %v", err)
	}
	return s.passing(t, cfg.Database)
}

func (s *Server) passing(t testing.TB, template string) string {
	t.Helper()
	name := s.create(t, template)
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Errorf("dropping database %q: %v", name, err)
		}
	})
	return s.keeper.dsn(name)
}

// create creates a database and returns its name.
func (s *Server) create(t testing.TB, template string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startLocked(t.Context()); err != nil {
		t.Fatalf("starting PostgreSQL: %v", err)
	}
	s.count++
	name := "test_" + strconv.Itoa(s.count)
	if _, err := s.admin.Exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatalf("creating database %q: %v", name, err)
	}
	return name
}

func (s *Server) startLocked(ctx context.Context) error {
	if s.started || s.err != nil {
		return s.err
	}
	s.keeper, s.err = hireKeeper(nil)
	if s.err != nil {
		return s.err
	}
	s.admin, s.err = pgx.Connect(ctx, s.keeper.dsn("postgres"))
	if s.err != nil {
		_ = s.keeper.dismiss()
		return s.err
	}
	s.started = true
	return nil
}

func (s *Server) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return nil // the server was stopped concurrently, and everything with it
	}
	_, err := s.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return err
}

// Restart closes every connection, stops the server gracefully, starts it again, and returns when it accepts
// connections. Use it only in a test with its own server, because all databases are unavailable for a while.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		t.Fatal("restarting PostgreSQL: it was not started")
	}
	if err := s.keeper.restart(); err != nil {
		t.Fatalf("restarting PostgreSQL: %v", err)
	}
	_ = s.admin.Close(t.Context()) // it is broken
	var err error
	if s.admin, err = pgx.Connect(t.Context(), s.keeper.dsn("postgres")); err != nil {
		t.Fatalf("connecting after a restart: %v", err)
	}
}

// Stop stops the server and removes its files. It does nothing if the server was not started. Main calls it.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return nil
	}
	s.started = false
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	_ = s.admin.Close(ctx) // the server stops in any case
	if err := s.keeper.dismiss(); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	return nil
}

// dsn returns the connection string of a database, over the socket of the server.
func (k *keeper) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database}
	q := url.Values{"host": {k.dir}, "port": {strconv.Itoa(k.port)}, "sslmode": {"disable"}}
	u.RawQuery = q.Encode()
	return u.String()
}
