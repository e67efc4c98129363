package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// defaultConns is the size of the pool where the connection string states none. Transactions
	// are short; three replicas of this many fit into a database as it comes out of the box.
	defaultConns = 16
	// pingTimeout is how long a connection that says nothing may take to answer.
	pingTimeout = 5 * time.Second
)

// connect makes the pool and checks who and what it is connected to.
func connect(ctx context.Context, text string) (*pgxpool.Pool, error) {
	cfg, err := parse(text)
	if err != nil {
		return nil, err
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
	return cfg, nil
}

// ping asks a connection of its own for an answer.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
