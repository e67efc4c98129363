package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

// Tune runs at the start of every connection of a store.
const Tune = tune

// Raw runs statements of a test in one transaction, in a chosen place.
type Raw struct{ t *tx }

// Within runs fn in a transaction that commits if it returns nil.
func (s *Store) Within(ctx context.Context, writable bool, fn func(Raw) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	t := &tx{conn: conn, writable: writable, serials: map[sqlstore.Subject]int64{}}
	defer t.rollback(ctx)
	if err := fn(Raw{t}); err != nil {
		return err
	}
	return t.queryAt(ctx, t.place, sqlstore.Scope{}, "COMMIT", nil, func(rows pgx.Rows) error {
		rows.Close()
		t.ended = true
		return rows.Err()
	})
}

// As returns the first column of the rows of a query, as the role of one tenant.
func (r Raw) As(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]string, error) {
	return r.at(ctx, place{appRole, string(tenant)}, query, args)
}

// Everywhere is As for the role that crosses tenants.
func (r Raw) Everywhere(ctx context.Context, query string, args ...any) ([]string, error) {
	return r.at(ctx, place{role: fleetRole}, query, args)
}

func (r Raw) at(ctx context.Context, p place, query string, args []any) ([]string, error) {
	var out []string
	err := r.t.queryAt(ctx, p, sqlstore.Scope{}, query, args, func(rows pgx.Rows) (err error) {
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return out, err
}

// Bare runs a query on a connection of the pool outside any transaction of the store.
func (s *Store) Bare(ctx context.Context, query string) error {
	_, err := s.pool.Exec(ctx, query)
	return err
}

// Translate is translate.
var Translate = translate

// Traced returns a read-only store of the same database with a tracer for all statements, and a function that
// closes it.
func (s *Store) Traced(ctx context.Context, tracer pgx.QueryTracer) (*Store, func(), error) {
	cfg := s.pool.Config()
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return &Store{pool: pool, log: s.log}, pool.Close, nil
}
