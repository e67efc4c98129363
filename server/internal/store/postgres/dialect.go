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
	labels   = regexp.MustCompile(`json_each\((\$\d+)\) AS `)
	forEach  = regexp.MustCompile(`CROSS JOIN (\w+) (\w+) ON \(([^()]+)\)`)
	locking  = regexp.MustCompile(`/\* (FOR [A-Z ]+) \*/`)

	translated translations
)

// translations keeps what texts of sqlstore were translated to. The zero value is ready; it is safe for
// concurrent use.
type translations struct {
	mu     sync.RWMutex
	byText map[string]string
}

// maxTranslations bounds what is kept: the server has a few hundred texts that it uses all the time, and
// filters of lists, which combine freely, make thousands more.
const maxTranslations = 1024

func (t *translations) get(query string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	text, ok := t.byText[query]
	return text, ok
}

// put keeps a translation. When there are too many it forgets all: those in use come back at once.
func (t *translations) put(query, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil || len(t.byText) >= maxTranslations {
		t.byText = map[string]string{}
	}
	t.byText[query] = text
}

// translate turns a query of sqlstore into PostgreSQL's SQL. Lists of ids become arrays, which an
// index can serve; the planner takes a set-returning function for a hundred rows of anything. A CROSS JOIN
// with a condition, which keeps the order of its tables in SQLite, becomes a table that is looked at for
// each row of the one before: what the planner believes of a small table, which is not analysed by itself before
// it grows, may be wrong by as much as it has rows.
func translate(query string) string {
	if t, ok := translated.get(query); ok {
		return t
	}
	t := idsNotIn.ReplaceAllString(query, `<> ALL (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))`)
	t = idsIn.ReplaceAllString(t, `= ANY (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))`)
	t = labels.ReplaceAllString(t, `jsonb_each_text($1::jsonb) AS `)
	t = forEach.ReplaceAllString(t, `CROSS JOIN LATERAL (SELECT * FROM $1 $2 WHERE $3 OFFSET 0) $2`)
	t = locking.ReplaceAllString(t, `$1`)
	translated.put(query, t)
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
