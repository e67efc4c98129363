// Package filetree defines a read-only, immutable tree of files: the content of a commit, served by Git and
// read by renderers. It does not depend on Git or YAML.
package filetree

import "context"

// Mode is the type of an entry.
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
	ID   string // equal IDs mean equal content
}

// Tree is safe for concurrent use.
type Tree interface {
	// ID identifies the content of the folder at path; "." is the root. It fails with fs.ErrNotExist if there
	// is none.
	ID(ctx context.Context, path string) (string, error)
	// List returns the entries of the folder at path, sorted by name. It fails with fs.ErrNotExist if there is
	// none.
	List(ctx context.Context, path string) ([]Entry, error)
	// Read returns the content of a file that List returned. It fails with ErrTooBig if the file is larger than
	// limit.
	Read(ctx context.Context, e Entry, limit int64) ([]byte, error)
}

// Error is an error in the tree itself, which only the author of the tree or of its settings can fix.
type Error struct{ Path, Problem string }

func (e *Error) Error() string { return e.Path + ": " + e.Problem }

// ErrTooBig means that a file is larger than the limit of its reader.
var ErrTooBig = errTooBig{}

type errTooBig struct{}

func (errTooBig) Error() string { return "file is too big" }
