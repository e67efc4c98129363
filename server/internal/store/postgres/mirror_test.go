package postgres_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// The schema of SQLite, one line each. A CHECK that a number is 0 or 1 is omitted: the other database has
// booleans.
const sqliteCatalogue = `
	WITH t AS (SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name <> 'goose_db_version')
	SELECT 'column ' || t.name || '.' || c.name || ' ' || c.type || CASE WHEN c."notnull" THEN ' NOT NULL' ELSE '' END
		|| CASE WHEN c.hidden > 0 THEN ' GENERATED' ELSE '' END FROM t, pragma_table_xinfo(t.name) c
	UNION SELECT 'index ' || t.name || CASE WHEN i."unique" THEN ' UNIQUE' ELSE '' END || CASE WHEN i.partial THEN ' PARTIAL' ELSE '' END
		|| ' (' || (SELECT group_concat(x.name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno) x) || ')'
		FROM t, pragma_index_list(t.name) i
	UNION SELECT 'index ' || t.name || ' UNIQUE (' || c.name || ')' FROM t, pragma_table_info(t.name) c
		WHERE c.pk = 1 AND c.type = 'INTEGER' AND NOT EXISTS (SELECT 1 FROM pragma_index_list(t.name) i WHERE i.origin = 'pk')
	UNION SELECT 'reference ' || t.name || ' (' || group_concat(f."from", ', ') || ') to ' || f."table" || ' (' || group_concat(f."to", ', ') || ') ' || f.on_delete
		FROM t, (SELECT t.name AS of, k.* FROM t, pragma_foreign_key_list(t.name) k ORDER BY k.id, k.seq) f WHERE f.of = t.name GROUP BY t.name, f.id
	UNION SELECT 'checks ' || t.name || ' ' || ((length(sql) - length(replace(sql, 'CHECK (', ''))) / 7
		- (length(sql) - length(replace(sql, 'IN (0, 1)', ''))) / 9) FROM t`

// The same for PostgreSQL, in the terms of SQLite. Text that is not sorted by its bytes has its own type.
const postgresCatalogue = `
	WITH t AS (SELECT oid, relname AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
		AND relname NOT IN ('goose_db_version', 'serials'))
	SELECT 'column ' || t.name || '.' || a.attname || ' ' || CASE a.atttypid::regtype::text
			WHEN 'bigint' THEN 'INTEGER' WHEN 'boolean' THEN 'INTEGER' WHEN 'bytea' THEN 'BLOB'
			WHEN 'text' THEN CASE WHEN a.attcollation = '"C"'::regcollation THEN 'TEXT' ELSE 'TEXT in another order' END ELSE a.atttypid::regtype::text END
		|| CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END || CASE WHEN a.attgenerated <> '' THEN ' GENERATED' ELSE '' END
		FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
	UNION SELECT 'index ' || t.name || CASE WHEN i.indisunique THEN ' UNIQUE' ELSE '' END || CASE WHEN i.indpred IS NOT NULL THEN ' PARTIAL' ELSE '' END
		|| ' (' || (SELECT string_agg(a.attname, ', ' ORDER BY k.n) FROM unnest(i.indkey) WITH ORDINALITY k (attnum, n)
			JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum) || ')'
		FROM t JOIN pg_index i ON i.indrelid = t.oid
	UNION SELECT 'reference ' || t.name || ' (' || (SELECT string_agg(a.attname, ', ' ORDER BY k.n) FROM unnest(f.conkey) WITH ORDINALITY k (attnum, n)
			JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.attnum)
		|| ') to ' || p.relname || ' (' || (SELECT string_agg(a.attname, ', ' ORDER BY k.n) FROM unnest(f.confkey) WITH ORDINALITY k (attnum, n)
			JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.attnum)
		|| ') ' || CASE f.confdeltype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' ELSE f.confdeltype::text END
		FROM t JOIN pg_constraint f ON f.conrelid = t.oid AND f.contype = 'f' JOIN pg_class p ON p.oid = f.confrelid
	UNION SELECT 'checks ' || t.name || ' ' || (SELECT count(*) FROM pg_constraint c WHERE c.conrelid = t.oid AND c.contype = 'c') FROM t`

// TestTheSchemasAreTheSame checks that both databases have the same constraints and indexes.
func TestTheSchemasAreTheSame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kedge.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	want := map[string]bool{}
	rows, err := db.QueryContext(t.Context(), sqliteCatalogue)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		want[line] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	there, err := admin(t, pg.Database(t)).Query(t.Context(), postgresCatalogue)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(there, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		got[line] = true
	}
	if len(want) < 400 {
		t.Errorf("only %d lines are compared", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the schema of PostgreSQL differs from SQLite's (-want +got):\n%s", diff)
	}
}
