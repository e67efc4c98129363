package gitsource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	return m.newTree(r, root.id), nil
}

func (m *Manager) newTree(r *use, root string) *tree {
	if r.access.opened == nil {
		r.access.opened = new(atomic.Int32)
	}
	return &tree{m: m, mirror: r.mirror, access: r.access, root: root, listed: map[string]bool{}, inner: map[string]*tree{}, owners: map[string]*tree{}}
}

// suspectAfter notes that something of a fetched commit could not be read, unless the reader asked
// for no more, lost patience or ran out of memory. The next fetch makes the mirror anew.
func (r *mirror) suspectAfter(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, filetree.ErrTooBig) && !errors.Is(err, errMemory) {
		r.suspect.Store(true)
	}
}

// tree reads one commit of a mirror, and of those of its submodules where the access allows it.
type tree struct {
	m      *Manager
	mirror *mirror
	access Access
	root   string

	mu     sync.Mutex
	listed map[string]bool  // folders whose files may be read, for fetching them together
	inner  map[string]*tree // trees of submodules by path
	owners map[string]*tree // whose the files of submodules are, by what names their content
	urls   map[string]string
}

// withSubmodules tells folders that are read through their submodules from the same folders that are
// not: their contents differ.
const withSubmodules = "+submodules"

func (t *tree) ID(ctx context.Context, name string) (string, error) {
	if !t.access.Submodules {
		return t.id(ctx, name)
	}
	at, rest, err := t.enter(ctx, name)
	if err != nil {
		return "", err
	}
	id, err := at.id(ctx, rest)
	if err != nil {
		return "", err
	}
	return id + withSubmodules, nil
}

// id is ID within this repository.
func (t *tree) id(ctx context.Context, name string) (string, error) {
	id := t.root
	for level := range levels(name) {
		entries, err := t.folder(ctx, id)
		if err != nil {
			return "", err
		}
		i, found := slices.BinarySearchFunc(entries, level, func(e filetree.Entry, name string) int {
			return cmp.Compare(e.Name, name)
		})
		if found && entries[i].Mode == filetree.Submodule {
			return "", &filetree.Error{Path: name, Problem: "in a submodule, which this repository is not read through: allow it by kedge repo set URL --submodules"}
		}
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
	if t.access.Submodules {
		return t.listThrough(ctx, name)
	}
	return t.list(ctx, name)
}

// list is List within this repository.
func (t *tree) list(ctx context.Context, name string) ([]filetree.Entry, error) {
	id, err := t.id(ctx, name)
	if err != nil {
		return nil, err
	}
	entries, err := t.folder(ctx, id)
	t.mu.Lock()
	t.listed[id] = true
	t.mu.Unlock()
	return slices.Clone(entries), err
}

func (t *tree) Read(ctx context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	if e.Mode == filetree.Dir || e.Mode == filetree.Submodule || !isCommit(e.ID) {
		return nil, fmt.Errorf("reading %q: not a file", e.Name)
	}
	t.mu.Lock()
	owner := t.owners[e.ID]
	t.mu.Unlock()
	if owner != nil {
		return owner.Read(ctx, e, limit)
	}
	_, content, err := t.mirror.cat.read(ctx, e.ID, limit)
	if errors.Is(err, errNoObject) && t.mirror.partial.Load() {
		if err := t.bring(ctx, e); err != nil {
			return nil, fmt.Errorf("reading %q: %w", e.Name, err)
		}
		_, content, err = t.mirror.cat.read(ctx, e.ID, limit)
	}
	if err != nil {
		t.mirror.suspectAfter(ctx, err)
		return nil, fmt.Errorf("reading %q: %w", e.Name, err)
	}
	return content, nil
}

// bring fetches the content of a file, and with it that of the files of its kind in the folders that
// were listed: who reads one reads the others next.
func (t *tree) bring(ctx context.Context, e filetree.Entry) error {
	t.mu.Lock()
	folders := slices.Collect(maps.Keys(t.listed))
	t.mu.Unlock()
	wanted := map[string]bool{e.ID: true}
	for _, id := range folders {
		entries, err := t.folder(ctx, id)
		if err != nil {
			return err
		}
		for _, other := range entries {
			if other.Mode == e.Mode && path.Ext(other.Name) == path.Ext(e.Name) && len(wanted) < maxBatch {
				wanted[other.ID] = true
			}
		}
	}
	for id := range wanted {
		if _, err := t.mirror.cat.info(ctx, id); err == nil && id != e.ID {
			delete(wanted, id)
		}
	}
	return t.m.fetchBlobs(ctx, t.access, slices.Sorted(maps.Keys(wanted)))
}

// folder returns the entries of a tree object, in the order of names. They are shared.
func (t *tree) folder(ctx context.Context, id string) ([]filetree.Entry, error) {
	if entries, ok := t.mirror.trees.Get(id); ok {
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
	t.mirror.trees.Put(id, entries)
	return entries, nil
}

// maxName bounds names as file systems do. Git itself would take megabytes, and what is read of folders
// is kept.
const maxName = 255

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
		if len(name) > maxName {
			return nil, &filetree.Error{Path: name[:60] + "…", Problem: fmt.Sprintf("a name of %d bytes, where no file system takes more than %d: rename it", len(name), maxName)}
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
