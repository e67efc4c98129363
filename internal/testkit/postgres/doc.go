// Package postgres provides a real PostgreSQL for tests: one temporary server per test binary, from the
// installed programs, and one new database per test.
//
//	var pg postgres.Server
//
//	func TestMain(m *testing.M) { os.Exit(pg.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), pg.Database(t))
//		…
//	}
//
// The server starts with the first database that a test requests, so that other tests do not wait for it. It is
// fast and unsafe: no fsync, no passwords.
//
// It never outlives the tests. A small shell, the keeper, waits at a pipe that only the test process holds
// open. When the pipe closes, for whatever reason the process ended, the keeper stops the server and removes
// its files. A parent-death signal would not work: the kernel sends it when the thread that started the child
// ends, and Go may end threads at any time.
package postgres
