// Package filetree is a read-only, immutable tree of files: what a commit holds, as Git serves it
// and as a renderer reads it. It knows no Git and no YAML.
package filetree

import "context"

// Mode is what an entry is.
type Mode int

// The modes of entries.
const (
	File Mode = iota
	Dir
	Symlink
	Submodule
)

// Entry is one name in a folder.
type Entry struct {
	Name string // without slashes
	Mode Mode
	ID   string // names the content: equal IDs mean equal content
}

// Tree is safe for concurrent use.
type Tree interface {
	// ID names the content of the folder at path; "." is the root. It fails with fs.ErrNotExist when
	// there is none.
	ID(ctx context.Context, path string) (string, error)
	// List returns the entries of the folder at path in the order of their names. It fails with
	// fs.ErrNotExist when there is none.
	List(ctx context.Context, path string) ([]Entry, error)
	// Read returns the content of a file that List returned, and fails with ErrTooBig when it is
	// larger than limit.
	Read(ctx context.Context, e Entry, limit int64) ([]byte, error)
}

// Error says what is wrong with a tree itself: only who writes it, or says how it is read, can mend it.
type Error struct{ Path, Problem string }

func (e *Error) Error() string { return e.Path + ": " + e.Problem }

// ErrTooBig says that a file is larger than its reader allows.
var ErrTooBig = errTooBig{}

type errTooBig struct{}

func (errTooBig) Error() string { return "file is too big" }
