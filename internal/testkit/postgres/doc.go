// Package postgres gives tests a real PostgreSQL: one throwaway server per test binary, made from
// the programs that are installed, and one fresh database per test. It is for tests.
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
// The server starts with the first database that is asked for, so that other tests do not wait
// for it. It is as unsafe as it is fast: no fsync, no passwords.
//
// It never outlives the tests. A small shell is its keeper: it waits at a pipe that only the test
// process holds open, and when that closes, however the process ended, stops the server and
// removes its files. A parent-death signal would not do: the kernel sends it when the thread that
// started the child ends, and Go ends threads as it likes.
package postgres
