// Package treefs provides a tree to third-party renderers: by path, with symbolic links followed inside the
// tree and never out of it, within limits, and with a record of every access. The record is the read set of a
// render: [Fingerprint] tells whether the same render would read the same content from another tree.
//
// It is read-only, does not parse YAML, and does not use the disk.
package treefs

import "context"

// Kind is the kind of a node, with links followed.
type Kind int

// The kinds of node.
const (
	File Kind = iota
	Dir
)

// Node is one name in a folder, links followed.
type Node struct {
	Name string
	Kind Kind
	Real string // path with every link resolved; only Stat sets it
}

// Files is a tree to read from. Paths have slashes, are relative to the root of the tree, which is ".", and
// never start with a slash. A missing file is fs.ErrNotExist. A user error (a link that leads out of the tree,
// a submodule, a file that is too large) is an [*Error].
type Files interface {
	// Stat returns the node at path.
	Stat(ctx context.Context, path string) (Node, error)
	// Read returns the content of a file.
	Read(ctx context.Context, path string) ([]byte, error)
	// List returns the nodes of a folder, sorted by name.
	List(ctx context.Context, path string) ([]Node, error)
}

// Error is a user error in the tree.
type Error struct {
	Path    string // "" if no file is meant
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}
