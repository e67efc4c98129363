// Package treefs is how renderers that are not our own see a tree: by path, with symbolic links
// followed inside the tree and never out of it, within limits, and with everything that was looked at
// noted down. What was noted is the read set of a render: [Fingerprint] tells, for another tree, whether
// the same render would read the same.
//
// It is read-only, knows no YAML and touches no disk.
package treefs

import "context"

// Kind is what is found at a path, links followed.
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
	Real string // path with every link followed; only Stat says it
}

// Files is a tree to read from. Paths have slashes, are relative to the root of the tree, which is ".",
// and never begin with a slash. What is not there is fs.ErrNotExist; what a user has to mend (a link
// that leads out of the tree, a submodule, a file that is too large) is an [*Error].
type Files interface {
	// Stat says what is at path.
	Stat(ctx context.Context, path string) (Node, error)
	// Read returns the content of a file.
	Read(ctx context.Context, path string) ([]byte, error)
	// List returns what a folder holds, in the order of names.
	List(ctx context.Context, path string) ([]Node, error)
}

// Error is something in the tree that a user has to mend.
type Error struct {
	Path    string // "" when no file is meant
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}
