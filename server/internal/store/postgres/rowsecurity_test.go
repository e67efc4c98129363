package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// newTenant creates a tenant with one agent, both with that name.
func newTenant(t *testing.T, s store.Store, name string) (fleet.TenantID, fleet.AgentID) {
	t.Helper()
	tenant, agent := fleet.NewTenantID(), fleet.NewAgentID()
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		err := tx.Tenants().Create(ctx, fleet.Tenant{ID: tenant, Name: name, CreatedAt: time.Now()})
		if err != nil {
			return err
		}
		return tx.Agents().Create(ctx, newAgent(tenant, agent, name))
	})
	return tenant, agent
}

func newAgent(tenant fleet.TenantID, id fleet.AgentID, name string) fleet.Agent {
	return fleet.Agent{ID: id, TenantID: tenant, Name: name, Scope: fleet.ScopeCluster, CreatedAt: time.Now()}
}

func update(t *testing.T, s store.Store, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx store.Tx) error { return fn(t.Context(), tx) }); err != nil {
		t.Fatalf("updating: %v", err)
	}
}

// admin is a connection of a superuser.
func admin(t *testing.T, d pgtest.Database) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.Admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// one returns the single value of a query.
func one[T any](t *testing.T, conn *pgx.Conn, query string, args ...any) T {
	t.Helper()
	var out T
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// covers: invariant 7
func TestAQueryWithoutTheTenantFindsNothing(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	d.URL += "&pool_max_conns=1" // so that all below share one connection
	s := pgtest.Open(t, d)
	a, _ := newTenant(t, s, "a")
	b, _ := newTenant(t, s, "b")
	const forgetful = `SELECT name FROM agents ORDER BY name`
	cases := []struct {
		reason string
		read   func(ctx context.Context, r postgres.Raw) ([]string, error)
		want   []string
	}{
		{"the fleet sees all", func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.Everywhere(ctx, forgetful) }, []string{"a", "b"}},
		{"a tenant sees its own", func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.As(ctx, a, forgetful) }, []string{"a"}},
		{"the next one does not see the last one's", func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.As(ctx, b, forgetful) }, []string{"b"}},
		{"without a tenant, no row is visible", func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.As(ctx, "", forgetful) }, nil},
		{"for an unknown tenant, no row is visible", func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.As(ctx, "x", forgetful) }, nil},
	}
	for _, c := range cases {
		var got []string
		err := s.Within(t.Context(), false, func(r postgres.Raw) (err error) {
			got, err = c.read(t.Context(), r)
			return err
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q and error %v, want %q", c.reason, got, err, c.want)
		}
		err = s.Bare(t.Context(), forgetful)
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s, and afterwards the connection itself: got error %v, want permission denied", c.reason, err)
		}
	}
}

func TestWritesDoNotCrossTenants(t *testing.T) {
	t.Parallel()
	d := pg.Database(t)
	s := pgtest.Open(t, d)
	a, _ := newTenant(t, s, "a")
	b, _ := newTenant(t, s, "b")
	as := func(query string, args ...any) func(context.Context, postgres.Raw) ([]string, error) {
		return func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.As(ctx, a, query, args...) }
	}
	for i, tenant := range []fleet.TenantID{a, b, ""} {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(
				tx.Tokens().CreateAPIToken(ctx, fleet.APIToken{ID: fleet.NewTokenID(), TenantID: tenant, Name: "of " + string(tenant),
					Role: fleet.RoleAdmin, Hash: append(make([]byte, 31), byte(i)), CreatedAt: time.Now()}),
				tx.Audit().Append(ctx, fleet.AuditEvent{TenantID: tenant, At: time.Now(), Action: "of " + string(tenant)}))
		})
	}
	everywhere := func(query string) func(context.Context, postgres.Raw) ([]string, error) {
		return func(ctx context.Context, r postgres.Raw) ([]string, error) { return r.Everywhere(ctx, query) }
	}
	insert := `INSERT INTO agents (tenant_id, id, name, scope, spec, connected, created_at) VALUES ($1, 'x', 'x', 'cluster', 1, false, 1)`
	cases := []struct {
		reason  string
		write   func(ctx context.Context, r postgres.Raw) ([]string, error)
		want    []string
		refused string
	}{
		{"a row of another tenant cannot be created", as(insert, string(b)), nil, "row-level security"},
		{"a row cannot be moved to another tenant", as(`UPDATE agents SET tenant_id = $1`, string(b)), nil, "row-level security"},
		{"an update without a condition touches the tenant's own", as(`UPDATE agents SET created_at = 2 RETURNING name`), []string{"a"}, ""},
		{"and so does a deletion", as(`DELETE FROM agents RETURNING name`), []string{"a"}, ""},
		{"a record of the outbox is the tenant's", as(`INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, at)
			VALUES ($1, '', '', '', '', 1)`, string(b)), nil, "row-level security"},
		{"tenants are not a tenant's to see", as(`SELECT name FROM tenants`), nil, "permission denied"},
		{"nor the settings", as(`SELECT epoch::text FROM settings`), nil, "permission denied"},
		{"nor responses to other callers", as(`SELECT key FROM replies`), nil, "permission denied"},
		{"a tenant sees its own tokens, and neither those of others nor of the fleet", as(`SELECT name FROM api_tokens`), []string{"of " + string(a)}, ""},
		{"and its own audit log", as(`SELECT action FROM audit_events`), []string{"of " + string(a)}, ""},
		{"a token cannot be moved to the fleet", as(`UPDATE api_tokens SET tenant_id = NULL`), nil, "row-level security"},
		{"nor forgotten", as(`DELETE FROM api_tokens`), nil, "permission denied"},
		{"the outbox is not rewritten", as(`UPDATE changes SET at = 1`), nil, "permission denied"},
		{"nor shortened", as(`DELETE FROM changes`), nil, "permission denied"},
		{"and the audit log is only ever appended to", as(`UPDATE audit_events SET actor = 'nobody'`), nil, "permission denied"},
		{"by anybody", everywhere(`UPDATE audit_events SET actor = 'nobody'`), nil, "permission denied"},
		{"nor shortened by a tenant", as(`DELETE FROM audit_events`), nil, "permission denied"},
		{"numbers that decisions are checked by are not a tenant's to write", as(`UPDATE serials SET n = 0`), nil, "permission denied"},
		{"the fleet role cannot write what its methods do not write", everywhere(`DELETE FROM agents RETURNING name`), nil, "permission denied"},
		{"nor other columns", everywhere(`UPDATE agents SET name = 'x'`), nil, "permission denied"},
	}
	for _, c := range cases {
		var got []string
		err := s.Within(t.Context(), true, func(r postgres.Raw) (err error) {
			got, err = c.write(t.Context(), r)
			return err
		})
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: got error %v, want an error with %q", c.reason, err, c.refused)
		case c.refused == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%s: got %q and error %v, want %q", c.reason, got, err, c.want)
		}
	}
	if got := one[string](t, admin(t, d), `SELECT COALESCE(string_agg(name || created_at::text, ' '), '') FROM agents WHERE created_at < 3 OR name <> 'b'`); got != "" {
		t.Errorf("agents that should not be: %s", got)
	}
}

// TestEveryTableWithATenantHasItsPolicies reads the catalog, so that it also covers tables of later migrations.
func TestEveryTableWithATenantHasItsPolicies(t *testing.T) {
	t.Parallel()
	conn := admin(t, pg.Database(t))
	rows, err := conn.Query(t.Context(), `SELECT c.relname || ': ' || string_agg(
			p.polname || ' ' || p.polcmd::text || ' ' || (SELECT string_agg(r::regrole::text, ',') FROM unnest(p.polroles) r) || ' '
				|| pg_get_expr(p.polqual, p.polrelid), '; ' ORDER BY p.polname)
			|| '; ' || c.relrowsecurity || c.relforcerowsecurity
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND c.relkind = 'r'
		LEFT JOIN pg_policy p ON p.polrelid = c.oid
		GROUP BY c.relname, c.relrowsecurity, c.relforcerowsecurity`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[*string])
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 30 {
		t.Errorf("only %d tables have a tenant", len(got))
	}
	const want = `fleet * kedge_fleet true; tenant * kedge_app (tenant_id = current_setting('kedge.tenant'::text, true)); truetrue`
	const twoReaders = `fleet * kedge_fleet true; grantee r kedge_app (grantee_tenant_id = current_setting('kedge.tenant'::text, true)); ` +
		`tenant * kedge_app (tenant_id = current_setting('kedge.tenant'::text, true)); truetrue`
	// A grant belongs to two tenants: the grantee reads it, and its limits, too.
	shared := []string{"grants", "grant_namespaces", "grant_kinds"}
	for _, line := range got {
		if line == nil {
			t.Error("a table has no policy")
			continue
		}
		name, policies, _ := strings.Cut(*line, ": ")
		expected := want
		if slices.Contains(shared, name) {
			expected = twoReaders
		}
		if diff := cmp.Diff(expected, policies); diff != "" {
			t.Errorf("the policies of %s differ (-want +got):\n%s", name, diff)
		}
	}
}

// covers: invariant 7
func TestAGrantIsReadByTwoAndWrittenByOne(t *testing.T) {
	t.Parallel()
	s := pg.Open(t)
	n := newNeighbours(t, s)
	third := newEstate(t, s, "third").tenant
	host, guest := n.host.tenant, n.guest.tenant
	limited := n.grant
	limited.Limits = fleet.Limits{Namespaces: []string{"x"}, Kinds: []string{"ConfigMap"}}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Grants().Update(ctx, limited) })
	cases := []struct {
		reason, query string
		who           fleet.TenantID
		want          int // rows, or -1 for a refusal
	}{
		{"the owner reads it", `SELECT id FROM grants`, host, 1},
		{"the grantee reads it", `SELECT id FROM grants`, guest, 1},
		{"and its limits", `SELECT namespace FROM grant_namespaces UNION ALL SELECT kind FROM grant_kinds`, guest, 2},
		{"others do not", `SELECT id FROM grants`, third, 0},
		{"another tenant does not read its limits", `SELECT namespace FROM grant_namespaces UNION ALL SELECT kind FROM grant_kinds`, third, 0},
		{"the grantee does not change it", `UPDATE grants SET created_at = 2 RETURNING id`, guest, 0},
		{"nor remove its limits", `DELETE FROM grant_kinds RETURNING kind`, guest, 0},
		{"nor delete it", `DELETE FROM grants RETURNING id`, guest, 0},
		{"nor create one", `INSERT INTO grants SELECT tenant_id, grantee_tenant_id, 'x', environment_id, environment_name, owner_name, grantee_name, 1 FROM grants RETURNING id`, guest, -1},
		{"nor widen it", `INSERT INTO grant_kinds SELECT tenant_id, grantee_tenant_id, grant_id, 'Secret' FROM grant_kinds RETURNING kind`, guest, -1},
		{"the owner changes it", `UPDATE grants SET created_at = 2 RETURNING id`, host, 1},
	}
	for _, c := range cases {
		var got []string
		err := s.Within(t.Context(), true, func(r postgres.Raw) (err error) {
			got, err = r.As(t.Context(), c.who, c.query)
			return err
		})
		switch {
		case c.want < 0 && (err == nil || !strings.Contains(err.Error(), "row-level security")):
			t.Errorf("%s: got %q and error %v, want that row-level security refuses", c.reason, got, err)
		case c.want >= 0 && (err != nil || len(got) != c.want):
			t.Errorf("%s: got %q and error %v, want %d rows", c.reason, got, err, c.want)
		}
	}
}

func TestIndexesServeTheTenant(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pg.Database(t))
	a, _ := newTenant(t, s, "a")
	cases := []struct{ query, want string }{
		{`SELECT id FROM deployments WHERE tenant_id = $1 AND (name, id) > ('m', 'x') ORDER BY name, id LIMIT 10`,
			"ROW(name, id) > ROW('m'::text, 'x'::text)"},
		{`SELECT agent_id FROM agent_labels WHERE tenant_id = $1 AND agent_id = ANY (ARRAY(SELECT jsonb_array_elements_text('["a"]'::jsonb)))`,
			"agent_id = ANY"},
		{`SELECT id FROM changes WHERE tenant_id = $1 AND seq > 7 ORDER BY seq LIMIT 10`, "seq > 7"},
	}
	for _, c := range cases {
		var got []string
		err := s.Within(t.Context(), false, func(r postgres.Raw) (err error) {
			if _, err := r.As(t.Context(), a, `SELECT set_config('enable_seqscan', 'off', true)`); err != nil {
				return err
			}
			got, err = r.As(t.Context(), a, "EXPLAIN "+strings.ReplaceAll(c.query, "$1", fmt.Sprintf("'%s'", a)))
			return err
		})
		plan := strings.Join(got, "\n")
		found := slices.ContainsFunc(got, func(line string) bool {
			return strings.Contains(line, "Index Cond") && strings.Contains(line, c.want)
		})
		if err != nil || !found {
			t.Errorf("%s: got error %v and\n%s\nwant an index that serves %s", c.query, err, plan, c.want)
		}
	}
}
