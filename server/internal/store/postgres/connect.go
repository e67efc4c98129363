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
	// defaultConns is the size of the pool if the connection string has none. Transactions are short; three
	// replicas with this many fit into a database with default settings.
	defaultConns = 16
	// pingTimeout limits the response time of an idle connection.
	pingTimeout = 5 * time.Second
	// tune sets planner parameters that nobody has set otherwise: data is in memory or on a disk without seek
	// times, and plans are never compiled. With the default settings, the database reads a whole table instead
	// of the rows of one agent out of fifty, and takes 100 ms to compile a query that runs for 1 ms.
	tune = `SELECT set_config(name, CASE name WHEN 'jit' THEN 'off' ELSE '1.1' END, false) FROM pg_settings
		WHERE name IN ('jit', 'random_page_cost') AND source = 'default'`
)

// connect creates the pool and checks its role and its database. Unless the connection string says otherwise,
// writable excludes nodes that are read-only.
func connect(ctx context.Context, text string, writable bool) (*pgxpool.Pool, error) {
	cfg, err := parse(text)
	if err != nil {
		return nil, err
	}
	if cfg.ConnConfig.ValidateConnect == nil && writable {
		// Of several hosts, or behind a name that moves, use the writable one, like
		// target_session_attrs=read-write.
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

// parse parses a connection string. Its errors contain no part of it, because it may contain a password.
func parse(text string) (*pgxpool.Config, error) {
	if text == "" {
		return nil, errors.New("connecting to the database: no connection string given")
	}
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, errors.New("connecting to the database: the connection string is not valid")
	}
	if !strings.Contains(text, "pool_max_conns=") {
		cfg.MaxConns = defaultConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "kedge-server"
	}
	// Not start-up parameters, which a pooler may refuse.
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, tune); err != nil && conn.IsClosed() {
			return err
		}
		return nil // only slower without
	}
	return cfg, nil
}

// ping checks that a separate connection responds and that its node is still writable: locks and notifications
// on a read-only node are not shared with others.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if validate := conn.Config().ValidateConnect; validate != nil {
		return validate(ctx, conn.PgConn())
	}
	return conn.Ping(ctx)
}
