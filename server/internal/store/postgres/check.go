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

// minVersion is 15: the first version whose public schema is not writable for everyone.
const minVersion = 150000

// facts determine whether row-level security applies to the server.
type facts struct {
	login             string
	version           int
	superuser, bypass bool // of the login role, or of a role that it can enter
	missing           *string
	memberless        *string // one of the roles that it cannot enter
	inherits          bool    // it has the privileges of the fleet role without entering it
	owned             *string // a table that it owns, or can become the owner of
	open              *string // a table with tenant_id that has no forced row-level security
}

const readFacts = `
	WITH protected AS (
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
		(SELECT min(name) FROM protected WHERE pg_has_role(session_user, owner, 'MEMBER')),
		(SELECT min(name) FROM protected WHERE NOT closed)`

// check refuses a login role to which row-level security does not apply, and a schema of another version.
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

// refusal returns an error with the remedy.
func (f facts) refusal() error {
	login := pgx.Identifier{f.login}.Sanitize()
	fresh := fmt.Sprintf("use a separate role for the server: CREATE ROLE kedge_server LOGIN NOINHERIT; GRANT %s, %s TO kedge_server",
		appRole, fleetRole)
	switch {
	case f.version < minVersion:
		return fmt.Errorf("PostgreSQL is too old: at least version %d is required", minVersion/10000)
	case f.superuser:
		return fmt.Errorf("role %s is a superuser, or can enter one, and would see the rows of all tenants: %s", login, fresh)
	case f.bypass:
		return fmt.Errorf("role %s has BYPASSRLS, or can enter a role that has, and would see the rows of all tenants: "+
			"ALTER ROLE %s NOBYPASSRLS", login, login)
	case f.missing != nil:
		return fmt.Errorf("there is no role %s: the database was not migrated", *f.missing)
	case f.owned != nil:
		return fmt.Errorf("role %s owns table %s, or can become its owner, and could disable its row-level security: %s", login, *f.owned, fresh)
	case f.memberless != nil:
		return fmt.Errorf("role %s cannot enter %s: GRANT %s TO %s", login, *f.memberless, *f.memberless, login)
	case f.inherits:
		return fmt.Errorf("role %s always has the privileges of %s and would see the rows of all tenants: %s", login, fleetRole, f.apart(login))
	case f.open != nil:
		return fmt.Errorf("table %s has a tenant_id but no forced row-level security: "+
			"ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", *f.open, *f.open)
	}
	return nil
}

// apart returns the statement that separates the privileges of the fleet role.
func (f facts) apart(login string) string {
	if f.version < 160000 {
		return "ALTER ROLE " + login + " NOINHERIT"
	}
	return fmt.Sprintf("GRANT %s TO %s WITH INHERIT FALSE", fleetRole, login)
}

// checkSchema compares the version of the schema with the version of this program.
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
		return fmt.Errorf("the schema has version %d, but this program needs version %d: migrate the database first", current, known)
	}
	return nil
}

// newest returns the highest number of a migration.
func newest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		return 0, errors.Join(err, errors.New("there are no migrations"))
	}
	last := names[len(names)-1] // sorted, and the numbers are of one length
	number, _, _ := strings.Cut(strings.TrimPrefix(last, "migrations/"), "_")
	return strconv.ParseInt(number, 10, 64)
}
