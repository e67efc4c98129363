package treefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// Limits are the limits of reads. Zero fields mean the default.
type Limits struct {
	Files      int   // different files that are read
	FileBytes  int64 // of one file
	TotalBytes int64 // of all files together
	Entries    int   // names in listed folders, counted each time
}

// OrDefault fills in the default for zero fields.
func (l Limits) OrDefault() Limits {
	return Limits{
		Files:      cmp.Or(l.Files, 10_000),
		FileBytes:  cmp.Or(l.FileBytes, 5<<20),
		TotalBytes: cmp.Or(l.TotalBytes, 20<<20),
		Entries:    cmp.Or(l.Entries, 500_000),
	}
}

// FS is [Files] over a tree. It is safe for concurrent use.
type FS struct {
	tree   filetree.Tree
	limits Limits

	mu      sync.Mutex
	folders folders
	notes   map[string]note   // accesses by path in the tree
	noted   int               // bytes of those paths
	content map[string][]byte // of files that were read, by path in the tree
	bytes   int64
	entries int
}

var _ Files = (*FS)(nil)

// New returns tree as files. It reads nothing in advance.
func New(tree filetree.Tree, limits Limits) *FS {
	return &FS{
		tree: tree, limits: limits.OrDefault(),
		folders: folders{tree: tree, listed: map[string][]filetree.Entry{}},
		notes:   map[string]note{}, content: map[string][]byte{},
	}
}

// Stat implements Files.
func (f *FS) Stat(ctx context.Context, name string) (Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.resolve(ctx, name)
	if err != nil {
		return Node{}, err
	}
	return Node{Name: path.Base(path.Clean(name)), Kind: at.kind(), Real: at.path}, nil
}

// Read implements Files. The content is shared and must not be changed.
func (f *FS) Read(ctx context.Context, name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	if at.kind() == Dir {
		return nil, problem(name, "a folder, but a file is required")
	}
	if data, ok := f.content[at.path]; ok {
		return data, nil
	}
	if len(f.content) >= f.limits.Files {
		return nil, problem(name, "with it more than the %d files that are allowed are read", f.limits.Files)
	}
	data, err := f.tree.Read(ctx, at.entry, f.limits.FileBytes)
	if errors.Is(err, filetree.ErrTooBig) {
		return nil, problem(name, "larger than the %d bytes that are allowed for one file", f.limits.FileBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	if filetree.IsLFSPointer(data) {
		return nil, problem(name, filetree.LFSProblem)
	}
	if f.bytes += int64(len(data)); f.bytes > f.limits.TotalBytes {
		return nil, problem(name, "with it the files are larger than the %d bytes that are allowed together", f.limits.TotalBytes)
	}
	f.content[at.path] = data
	return data, nil
}

// List implements Files. A broken link is listed as a file, as on disk: reading it returns the error.
func (f *FS) List(ctx context.Context, name string) ([]Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	if at.kind() == File {
		return nil, problem(name, "a file, but a folder is required")
	}
	entries, err := f.folders.list(ctx, at.path)
	if err != nil {
		return nil, err
	}
	f.note(at.path, noteNames) // even if there are too many: with fewer names the result would differ
	// Counted each time, because links can make a small tree endless.
	if f.entries += len(entries); f.entries > f.limits.Entries {
		return nil, problem(name, "with it more than %d files and folders would have to be searched", f.limits.Entries)
	}
	nodes := make([]Node, 0, len(entries))
	for _, e := range entries {
		kind, err := f.kindOf(ctx, at.path, e)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, Node{Name: e.Name, Kind: kind})
	}
	return nodes, nil
}

func (f *FS) kindOf(ctx context.Context, folder string, e filetree.Entry) (Kind, error) {
	switch e.Mode {
	case filetree.File:
		return File, nil
	case filetree.Dir, filetree.Submodule:
		return Dir, nil
	}
	target, err := f.resolve(ctx, path.Join(folder, e.Name))
	var user *Error
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &user) {
		return File, nil
	}
	return target.kind(), err
}

func problem(name, format string, args ...any) error {
	return &Error{Path: name, Problem: fmt.Sprintf(format, args...)}
}
