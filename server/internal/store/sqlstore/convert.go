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

// defaultLimit is the size of a page where the caller states none.
const defaultLimit = 100

func limitOf(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return n
}

// numberAfter is where a page begins whose key is a number; first where it is the first one. What is no
// number is a mistake of the user's: it came from outside.
func numberAfter(page store.Page, first int64) (int64, error) {
	if page.After == "" {
		return first, nil
	}
	n, err := strconv.ParseInt(page.After, 10, 64)
	if err != nil {
		return 0, fleet.Invalid("after", "must be 'next' of the page before")
	}
	return n, nil
}

// micros is how a time is stored: unix microseconds, NULL for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// timeInto scans what micros wrote. Times come back in UTC.
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

// nullable is NULL for "": a reference to nothing rather than to a row without a name.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// idList is the argument of json_each: one parameter for any number of ids, so that the text of
// the query, and with it the prepared statement, stays the same.
func idList[T ~string](ids []T) string {
	if len(ids) == 0 {
		return "[]"
	}
	list := make([]string, len(ids))
	for i, id := range ids {
		// PostgreSQL has no NUL in any text, nor in any JSON.
		list[i] = strings.ReplaceAll(string(id), "\x00", "\uFFFD")
	}
	// Strings always marshal.
	b, _ := json.Marshal(list)
	return string(b)
}

// jsonObject is labels as one argument, for "json_each($n) AS p", whose rows have p.key and p.value.
func jsonObject(labels map[string]string) string {
	clean := make(map[string]string, len(labels))
	for key, value := range labels {
		clean[strings.ReplaceAll(key, "\x00", "\uFFFD")] = strings.ReplaceAll(value, "\x00", "\uFFFD")
	}
	b, _ := json.Marshal(clean)
	return string(b)
}

// idsOf collects the ids of rows that were just read, to load what hangs below them.
func idsOf[T any, ID ~string](rows []T, id func(*T) ID) []ID {
	out := make([]ID, len(rows))
	for i := range rows {
		out[i] = id(&rows[i])
	}
	return out
}

// only returns the single row of a list that a unique key was asked for.
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
