package sqlite

import (
	"container/list"
	"database/sql"
)

// maxStatements bounds the prepared statements of one connection. The server has about three hundred texts
// that it uses all the time; filters of lists, which combine freely, make thousands more. A prepared
// statement takes about 10 KiB.
const maxStatements = 512

// statements are the prepared statements of one connection that were used last. The zero value is ready.
type statements struct {
	byText map[string]*list.Element
	recent list.List // of *statement; the one that was used last is in front
}

type statement struct {
	text string
	stmt *sql.Stmt
}

// get returns the statement of a text, or nil.
func (s *statements) get(text string) *sql.Stmt {
	e, ok := s.byText[text]
	if !ok {
		return nil
	}
	s.recent.MoveToFront(e)
	return e.Value.(*statement).stmt
}

// put keeps a statement, and closes the one that was not used for the longest time when there are too many.
func (s *statements) put(text string, stmt *sql.Stmt) {
	if s.byText == nil {
		s.byText = map[string]*list.Element{}
	}
	s.byText[text] = s.recent.PushFront(&statement{text, stmt})
	if s.recent.Len() > maxStatements {
		oldest := s.recent.Remove(s.recent.Back()).(*statement)
		delete(s.byText, oldest.text)
		_ = oldest.stmt.Close()
	}
}

// close closes all statements and forgets them.
func (s *statements) close() {
	for _, e := range s.byText {
		_ = e.Value.(*statement).stmt.Close()
	}
	*s = statements{}
}
