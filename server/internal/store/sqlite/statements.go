package sqlite

import (
	"database/sql"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxStatements limits the prepared statements of one connection. The server uses about three hundred texts all
// the time; filters of lists, which combine freely, create thousands more. A prepared statement needs about 10
// KiB.
const maxStatements = 512

// statements are the recently used prepared statements of one connection. The zero value is ready.
type statements struct {
	recent *simplelru.LRU[string, *sql.Stmt]
}

// get returns the statement of a text, or nil.
func (s *statements) get(text string) *sql.Stmt {
	if s.recent == nil {
		return nil
	}
	stmt, _ := s.recent.Get(text)
	return stmt
}

// put keeps a statement, and closes the least recently used one if there are too many.
func (s *statements) put(text string, stmt *sql.Stmt) {
	if s.recent == nil {
		// The library fails only for a size below 1.
		s.recent, _ = simplelru.NewLRU(maxStatements, func(_ string, stmt *sql.Stmt) { _ = stmt.Close() })
	}
	s.recent.Add(text, stmt)
}

// close closes and removes all statements.
func (s *statements) close() {
	if s.recent != nil {
		s.recent.Purge()
	}
}
