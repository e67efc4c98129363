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

// translations caches translated queries of sqlstore. The zero value is ready; it is safe for concurrent use.
type translations struct {
	mu     sync.RWMutex
	byText map[string]string
}

// maxTranslations limits the cache: the server uses a few hundred queries all the time, and filters of lists,
// which combine freely, create thousands more.
const maxTranslations = 1024

func (t *translations) get(query string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	text, ok := t.byText[query]
	return text, ok
}

// put stores a translation. If there are too many, it deletes all: those in use come back quickly.
func (t *translations) put(query, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil || len(t.byText) >= maxTranslations {
		t.byText = map[string]string{}
	}
	t.byText[query] = text
}

// translate converts a query of sqlstore to the SQL of PostgreSQL. Lists of ids become arrays, which an index
// can serve; the planner estimates a hundred rows for a set-returning function. A CROSS JOIN with a condition,
// which keeps the order of its tables in SQLite, becomes a lateral join: the statistics of a small table, which
// is not analyzed before it grows, may be very wrong.
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

// clean returns args with valid text: PostgreSQL refuses invalid UTF-8.
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
