package sqlstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// defaultLimit is the default size of a page.
const defaultLimit = 100

func limitOf(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return n
}

// numberAfter returns the start of a page whose key is a number; first for the first page. Anything that is not
// a number is a user error, because it comes from outside.
func numberAfter(page store.Page, first int64) (int64, error) {
	if page.After == "" {
		return first, nil
	}
	n, err := strconv.ParseInt(page.After, 10, 64)
	if err != nil {
		return 0, fleet.Invalid("after", "must be 'next' of the previous page")
	}
	return n, nil
}

// micros converts a time to its stored form: unix microseconds, NULL for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// timeInto scans a value of micros. Times are in UTC.
func timeInto(t *time.Time) *timeScanner { return &timeScanner{t} }

type timeScanner struct{ dest *time.Time }

func (s *timeScanner) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.dest = time.Time{}
	case int64:
		*s.dest = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("scanning a time from %T", src)
	}
	return nil
}

// nullable returns NULL for "": a missing reference.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// idList returns the argument of json_each: one parameter for any number of ids, so that the text of the query,
// and with it the prepared statement, stays the same.
func idList[T ~string](ids []T) string {
	if len(ids) == 0 {
		return "[]"
	}
	list := make([]string, len(ids))
	for i, id := range ids {
		// PostgreSQL accepts NUL in no text and in no JSON.
		list[i] = strings.ReplaceAll(string(id), "\x00", "\uFFFD")
	}
	// Strings always marshal.
	b, _ := json.Marshal(list)
	return string(b)
}

// jsonObject returns labels as one argument, for "json_each($n) AS p", whose rows have p.key and p.value.
func jsonObject(labels map[string]string) string {
	clean := make(map[string]string, len(labels))
	for key, value := range labels {
		clean[strings.ReplaceAll(key, "\x00", "\uFFFD")] = strings.ReplaceAll(value, "\x00", "\uFFFD")
	}
	b, _ := json.Marshal(clean)
	return string(b)
}

// idsOf collects the ids of rows, to load their child rows.
func idsOf[T any, ID ~string](rows []T, id func(*T) ID) []ID {
	out := make([]ID, len(rows))
	for i := range rows {
		out[i] = id(&rows[i])
	}
	return out
}

// only returns the single row of a query by a unique key.
func only[T any](rows []T, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	if len(rows) == 0 {
		return zero, store.ErrNotFound
	}
	return rows[0], nil
}
