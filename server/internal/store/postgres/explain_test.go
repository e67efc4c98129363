package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statement is a statement of a store.
type statement struct {
	query string
	args  []any
}

// recorder keeps the statements of one transaction at a time.
type recorder struct{ statements []statement }

var (
	_ pgx.QueryTracer = (*recorder)(nil)
	_ pgx.BatchTracer = (*recorder)(nil)
)

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.statements = append(r.statements, statement{d.SQL, d.Args})
	return ctx
}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		r.statements = append(r.statements, statement{q.SQL, q.Arguments})
	}
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// explain runs the recorded statements again, from BEGIN to the end.
func (e *explainer) explain(ctx context.Context, mode string) (rows int, plans []string, err error) {
	if _, err := e.conn.Exec(ctx, "SET plan_cache_mode = "+mode); err != nil {
		return 0, nil, err
	}
	for _, s := range e.heard.statements {
		read := slices.ContainsFunc([]string{"SELECT", "WITH", "DELETE"}, func(verb string) bool { return strings.HasPrefix(s.query, verb) })
		if !read || strings.Contains(s.query, "set_config") {
			if _, err := e.conn.Exec(ctx, s.query, s.args...); err != nil {
				return 0, nil, fmt.Errorf("%s: %w", s.query, err)
			}
			continue
		}
		n, plan, err := e.readBy(ctx, s)
		if err != nil {
			return 0, nil, fmt.Errorf("%s: %w", s.query, err)
		}
		rows += n
		if n > 100 {
			plans = append(plans, plan)
		}
	}
	return rows, plans, nil
}

// readBy returns how many rows a statement reads, and its plan.
func (e *explainer) readBy(ctx context.Context, s statement) (rows int, plan string, err error) {
	values := make([]string, len(s.args))
	for i, arg := range s.args {
		values[i] = "'" + strings.ReplaceAll(fmt.Sprint(reflect.ValueOf(arg)), "'", "''") + "'"
	}
	// The simple protocol accepts several statements in one message.
	results, err := e.conn.PgConn().Exec(ctx, "PREPARE looked_at AS "+s.query+"; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at ("+
		strings.Join(values, ", ")+"); DEALLOCATE looked_at").ReadAll()
	if err != nil {
		return 0, "", err
	}
	var explained []struct{ Plan planNode }
	if err := json.Unmarshal(results[1].Rows[0][0], &explained); err != nil {
		return 0, "", err
	}
	var steps strings.Builder
	rows = explained[0].Plan.read("  ", &steps)
	return rows, strings.Join(strings.Fields(s.query), " ") + "\n" + steps.String(), nil
}

// planNode is one step of a plan with its counters, per loop.
type planNode struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Checked  float64 `json:"Rows Removed by Index Recheck"`
	Plans    []planNode
}

// few are small tables, which the planner may read completely.
var few = []string{"agents", "repositories", "tenants", "serials"}

// read counts the rows that were read from growing tables, including rows that a filter removed, and writes the
// steps that read many.
func (n planNode) read(indent string, steps *strings.Builder) int {
	rows := 0
	if n.Relation != "" && !slices.Contains(few, n.Relation) {
		rows = int((n.Rows + n.Filtered + n.Checked) * n.Loops)
		if rows > 100 {
			fmt.Fprintf(steps, "%s%s of %s %s %s: %d rows\n", indent, n.Type, n.Relation, n.Index, n.Cond, rows)
		}
	}
	for _, below := range n.Plans {
		rows += below.read(indent+"  ", steps)
	}
	return rows
}
