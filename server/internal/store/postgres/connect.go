package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// defaultConns is the size of the pool where the connection string states none. Transactions
	// are short; three replicas of this many fit into a database as it comes out of the box.
	defaultConns = 16
	// pingTimeout is how long a connection that says nothing may take to answer.
	pingTimeout = 5 * time.Second
	// tune, for what nobody has set otherwise, has the planner believe that what it looks up is in memory or on a disk without arms, and never compile a
	// plan. As the database comes out of the box, it reads a whole table rather than the rows of one agent out of fifty,
	// and takes 100 ms to compile what it believes to be many rows and what takes 1 ms to run.
	tune = `SELECT set_config(name, CASE name WHEN 'jit' THEN 'off' ELSE '1.1' END, false) FROM pg_settings
		WHERE name IN ('jit', 'random_page_cost') AND source = 'default'`
)

// connect makes the pool and checks who and what it is connected to. Unless the connection string says
// otherwise, writable keeps it away from nodes that take no writes.
func connect(ctx context.Context, text string, writable bool) (*pgxpool.Pool, error) {
	cfg, err := parse(text)
	if err != nil {
		return nil, err
	}
	if cfg.ConnConfig.ValidateConnect == nil && writable {
		// Of several hosts, or behind a name that moves, the one that takes writes: as target_session_attrs=read-write.
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", unreachable(ctx, err))
	}
	if err := check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// parse reads a connection string. Its errors name no part of it: there may be a password in it.
func parse(text string) (*pgxpool.Config, error) {
	if text == "" {
		return nil, errors.New("connecting to the database: no connection string given")
	}
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, errors.New("connecting to the database: the connection string cannot be read")
	}
	if !strings.Contains(text, "pool_max_conns=") {
		cfg.MaxConns = defaultConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "kedge-server"
	}
	// Not among the parameters that a connection starts with: a pooler in between may refuse those.
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, tune); err != nil && conn.IsClosed() {
			return err
		}
		return nil // slower is no reason to stop
	}
	return cfg, nil
}

// ping asks a connection of its own for an answer, and whether its node still takes writes: what is locked or
// listened for on one that does not is nobody else's.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if validate := conn.Config().ValidateConnect; validate != nil {
		return validate(ctx, conn.PgConn())
	}
	return conn.Ping(ctx)
}
