package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
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
	if !setsTLS(text) {
		requireTLS(cfg.ConnConfig)
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

// keywordTLS is the setting in a connection string that is no URL.
var keywordTLS = regexp.MustCompile(`(^|\s)sslmode\s*=`)

// setsTLS reports whether a connection string says whether to use TLS.
func setsTLS(text string) bool {
	if u, err := url.Parse(text); err == nil && u.Scheme != "" {
		return u.Query().Has("sslmode")
	}
	return keywordTLS.MatchString(text)
}

// requireTLS removes the fallback to plain text, which a connection string without sslmode has: anybody on the way could
// cause it, and read the password. Plain text stays within this machine, unless the connection string has sslmode=disable.
func requireTLS(cfg *pgx.ConnConfig) {
	cfg.Fallbacks = slices.DeleteFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.TLSConfig == nil && !isLocal(f.Host)
	})
}

// isLocal reports whether a host is a socket or a loopback address of this machine.
func isLocal(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" || err == nil && address.IsLoopback()
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
