package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// minVersion is 15: the first whose public schema is not everybody's to write to.
const minVersion = 150000

// facts are what decides whether row-level security holds the server.
type facts struct {
	login             string
	version           int
	superuser, bypass bool // the login role, or a role that it enters, is
	missing           *string
	memberless        *string // one of the roles that it may not enter
	inherits          bool    // it has the rights of the fleet without entering it
	owned             *string // a table that it owns, or can become the owner of
	open              *string // a table with tenant_id that has no wall
}

const readFacts = `
	WITH walled AS (
		SELECT c.oid::regclass::text AS name, c.relowner AS owner, c.relrowsecurity AND c.relforcerowsecurity AS closed
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = current_schema::regnamespace AND c.relkind IN ('r', 'p')
			AND a.attname = 'tenant_id' AND NOT a.attisdropped
	), roles AS (
		SELECT name, (SELECT oid FROM pg_roles WHERE rolname = name) AS oid FROM unnest($1::text[]) AS name
	), entered AS (
		SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = session_user OR rolname = ANY ($1)
	)
	SELECT session_user::text, current_setting('server_version_num')::int,
		(SELECT bool_or(rolsuper) FROM entered), (SELECT bool_or(rolbypassrls) FROM entered),
		(SELECT min(name) FROM roles WHERE oid IS NULL),
		(SELECT min(name) FROM roles WHERE oid IS NOT NULL AND NOT pg_has_role(session_user, oid, 'MEMBER')),
		EXISTS (SELECT FROM roles f WHERE f.name = $2 AND f.oid IS NOT NULL AND (pg_has_role(session_user, f.oid, 'USAGE')
			OR EXISTS (SELECT FROM roles a WHERE a.name <> $2 AND a.oid IS NOT NULL AND pg_has_role(a.oid, f.oid, 'MEMBER')))),
		(SELECT min(name) FROM walled WHERE pg_has_role(session_user, owner, 'MEMBER')),
		(SELECT min(name) FROM walled WHERE NOT closed)`

// check refuses a server that row-level security would not hold, and a schema that is not this
// program's.
func check(ctx context.Context, pool *pgxpool.Pool) error {
	var f facts
	err := pool.QueryRow(ctx, readFacts, []string{appRole, fleetRole}, fleetRole).Scan(&f.login, &f.version,
		&f.superuser, &f.bypass, &f.missing, &f.memberless, &f.inherits, &f.owned, &f.open)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", unreachable(ctx, err))
	}
	if err := f.refusal(); err != nil {
		return err
	}
	return checkSchema(ctx, pool)
}

// refusal says what is wrong and how to mend it.
func (f facts) refusal() error {
	login := pgx.Identifier{f.login}.Sanitize()
	fresh := fmt.Sprintf("use a role of the server's own: CREATE ROLE kedge_server LOGIN NOINHERIT; GRANT %s, %s TO kedge_server",
		appRole, fleetRole)
	switch {
	case f.version < minVersion:
		return fmt.Errorf("PostgreSQL is too old: at least %d is needed", minVersion/10000)
	case f.superuser:
		return fmt.Errorf("role %s is a superuser, or enters one, and would see the rows of all tenants: %s", login, fresh)
	case f.bypass:
		return fmt.Errorf("role %s has BYPASSRLS, or enters a role that has, and would see the rows of all tenants: "+
			"ALTER ROLE %s NOBYPASSRLS", login, login)
	case f.missing != nil:
		return fmt.Errorf("there is no role %s: the database was not migrated", *f.missing)
	case f.owned != nil:
		return fmt.Errorf("role %s owns table %s, or can become its owner, and could take its walls down: %s", login, *f.owned, fresh)
	case f.memberless != nil:
		return fmt.Errorf("role %s may not enter %s: GRANT %s TO %s", login, *f.memberless, *f.memberless, login)
	case f.inherits:
		return fmt.Errorf("role %s has the rights of %s all the time and would see the rows of all tenants: %s", login, fleetRole, f.apart(login))
	case f.open != nil:
		return fmt.Errorf("table %s has a tenant_id but no forced row-level security: "+
			"ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", *f.open, *f.open)
	}
	return nil
}

// apart says how to keep the rights of the fleet apart.
func (f facts) apart(login string) string {
	if f.version < 160000 {
		return "ALTER ROLE " + login + " NOINHERIT"
	}
	return fmt.Sprintf("GRANT %s TO %s WITH INHERIT FALSE", fleetRole, login)
}

// checkSchema compares the version of the schema with what this program was built for.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	known, err := newest(migrations)
	if err != nil {
		return err
	}
	var current int64
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, enterScope, appRole, ""); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&current)
	})
	switch {
	case err != nil:
		return fmt.Errorf("reading the version of the schema: %w; was the database migrated?", mapError(ctx, err, false))
	case current > known:
		return olderThan(current, known)
	case current < known:
		return fmt.Errorf("the schema is of version %d, this program needs %d: migrate the database first", current, known)
	}
	return nil
}

// newest is the highest number of a migration.
func newest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		return 0, errors.Join(err, errors.New("there are no migrations"))
	}
	last := names[len(names)-1] // sorted, and the numbers are of one length
	number, _, _ := strings.Cut(strings.TrimPrefix(last, "migrations/"), "_")
	return strconv.ParseInt(number, 10, 64)
}
