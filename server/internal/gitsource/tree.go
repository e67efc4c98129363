package gitsource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// maxTreeBytes bounds one folder: about a hundred thousand names.
const maxTreeBytes = 8 << 20

// Tree returns the files of a commit that was fetched, to who has fetched from there with the same
// credential before, with or without success since. It fails with ErrNotFetched for others. The tree
// is safe for concurrent use and stays readable as long as the commit is in the mirror, which is at
// least a day after the remote has dropped it.
func (m *Manager) Tree(ctx context.Context, access Access, commit string) (filetree.Tree, error) {
	r, err := m.use(access)
	if err != nil {
		return nil, err
	}
	defer m.end(r.mirror)
	if !isCommit(commit) || !r.grants.has(r.reader) {
		return nil, fmt.Errorf("reading %q of %s: %w", commit, r.url, ErrNotFetched)
	}
	root, err := r.cat.info(ctx, commit+"^{tree}")
	if errors.Is(err, errNoObject) || (err != nil && !r.exists()) {
		return nil, fmt.Errorf("reading %s of %s: %w", commit, r.url, ErrNotFetched)
	}
	if err != nil {
		r.suspectAfter(ctx, err)
		return nil, fmt.Errorf("reading %s of %s: %w", commit, r.url, err)
	}
	return &tree{mirror: r.mirror, root: root.id}, nil
}

// suspectAfter notes that something of a fetched commit could not be read, unless the reader asked
// for no more or lost patience. The next fetch makes the mirror anew.
func (r *mirror) suspectAfter(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, filetree.ErrTooBig) {
		r.suspect.Store(true)
	}
}

// tree reads one commit of a mirror.
type tree struct {
	mirror *mirror
	root   string
}

func (t *tree) ID(ctx context.Context, name string) (string, error) {
	id := t.root
	for level := range levels(name) {
		entries, err := t.folder(ctx, id)
		if err != nil {
			return "", err
		}
		i, found := slices.BinarySearchFunc(entries, level, func(e filetree.Entry, name string) int {
			return cmp.Compare(e.Name, name)
		})
		if !found || entries[i].Mode != filetree.Dir {
			return "", fmt.Errorf("looking for the folder %q: %w", name, fs.ErrNotExist)
		}
		id = entries[i].ID
	}
	return id, nil
}

// levels yields the names along a path; none for the root.
func levels(name string) func(func(string) bool) {
	name = path.Clean(name)
	if name == "." || name == "/" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(strings.Trim(name, "/"), "/")
}

func (t *tree) List(ctx context.Context, name string) ([]filetree.Entry, error) {
	id, err := t.ID(ctx, name)
	if err != nil {
		return nil, err
	}
	entries, err := t.folder(ctx, id)
	return slices.Clone(entries), err
}

func (t *tree) Read(ctx context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	if e.Mode == filetree.Dir || e.Mode == filetree.Submodule || !isCommit(e.ID) {
		return nil, fmt.Errorf("reading %q: not a file", e.Name)
	}
	_, content, err := t.mirror.cat.read(ctx, e.ID, limit)
	if err != nil {
		t.mirror.suspectAfter(ctx, err)
		return nil, fmt.Errorf("reading %q: %w", e.Name, err)
	}
	return content, nil
}

// folder returns the entries of a tree object, in the order of names. They are shared.
func (t *tree) folder(ctx context.Context, id string) ([]filetree.Entry, error) {
	if entries, ok := t.mirror.trees.get(id); ok {
		return entries, nil
	}
	found, data, err := t.mirror.cat.read(ctx, id, maxTreeBytes)
	if err != nil {
		t.mirror.suspectAfter(ctx, err)
		return nil, fmt.Errorf("reading a folder: %w", err)
	}
	if found.kind != "tree" {
		return nil, fmt.Errorf("reading a folder: %s is a %s", id, found.kind)
	}
	entries, err := parseTree(data)
	if err != nil {
		return nil, fmt.Errorf("reading a folder: %w", err)
	}
	t.mirror.trees.put(id, entries)
	return entries, nil
}

var errBadTree = errors.New("git returned a malformed tree")

// parseTree reads git's own form of a folder: for each entry its mode in octal, a space, its name,
// a NUL, and the twenty bytes of its object's name.
func parseTree(data []byte) ([]filetree.Entry, error) {
	entries := make([]filetree.Entry, 0, len(data)/40)
	for len(data) > 0 {
		header, rest, ok := bytes.Cut(data, []byte{0})
		if !ok || len(rest) < 20 {
			return nil, errBadTree
		}
		mode, name, ok := strings.Cut(string(header), " ")
		if !ok || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return nil, errBadTree
		}
		e := filetree.Entry{Name: name, ID: hex.EncodeToString(rest[:20])}
		switch strings.TrimLeft(mode, "0") {
		case "40000":
			e.Mode = filetree.Dir
		case "120000":
			e.Mode = filetree.Symlink
		case "160000":
			e.Mode = filetree.Submodule
		default:
			e.Mode = filetree.File
		}
		entries = append(entries, e)
		data = rest[20:]
	}
	// git orders folders as if their names ended in a slash.
	slices.SortFunc(entries, func(a, b filetree.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}
