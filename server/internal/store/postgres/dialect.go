package postgres

import (
	"reflect"
	"regexp"
	"sync"

	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

var (
	idsNotIn = regexp.MustCompile(`NOT IN \(SELECT value FROM json_each\((\$\d+)\)\)`)
	idsIn    = regexp.MustCompile(`IN \(SELECT value FROM json_each\((\$\d+)\)\)`)
	forEach  = regexp.MustCompile(`CROSS JOIN (\w+) (\w+) ON \(([^()]+)\)`)
	locking  = regexp.MustCompile(`/\* (FOR [A-Z ]+) \*/`)

	translated sync.Map // of the texts of sqlstore, which are constants and few
)

// translate turns a query of sqlstore into PostgreSQL's SQL. Lists of ids become arrays, which an
// index can serve; the planner takes a set-returning function for a hundred rows of anything. A CROSS JOIN
// with a condition, which keeps the order of its tables in SQLite, becomes a table that is looked at for
// each row of the one before: what the planner believes of a small table, which is not analysed by itself before
// it grows, may be wrong by as much as it has rows.
func translate(query string) string {
	if t, ok := translated.Load(query); ok {
		return t.(string)
	}
	t := idsNotIn.ReplaceAllString(query, `<> ALL (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))`)
	t = idsIn.ReplaceAllString(t, `= ANY (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))`)
	t = forEach.ReplaceAllString(t, `CROSS JOIN LATERAL (SELECT * FROM $1 $2 WHERE $3 OFFSET 0) $2`)
	t = locking.ReplaceAllString(t, `$1`)
	translated.Store(query, t)
	return t
}

// clean returns args with all text mended: PostgreSQL refuses what is not UTF-8.
func clean(args []any) []any {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = sqlstore.Mend(v)
		case nil, int, int64, bool, []byte:
		default:
			if r := reflect.ValueOf(arg); r.Kind() == reflect.String {
				args[i] = sqlstore.Mend(r.String())
			}
		}
	}
	return args
}
