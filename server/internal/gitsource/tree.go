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

// maxTreeBytes limits one folder: about a hundred thousand names.
const maxTreeBytes = 8 << 20

// Tree returns the files of a fetched commit. The reader must have fetched from the repository with the same
// credential before. Otherwise it returns ErrNotFetched. The tree is safe for concurrent use. It stays readable
// while the commit is in the mirror, which is at least one day after the remote dropped it.
func (m *Manager) Tree(ctx context.Context, access Access, commit string) (filetree.Tree, error) {
	r, err := m.acquire(access)
	if err != nil {
		return nil, err
	}
	defer m.release(r.mirror)
	if !isCommit(commit) || !r.accessRecords.verified(r.reader) {
		return nil, fmt.Errorf("reading %q of %s: %w", commit, r.url, ErrNotFetched)
	}
	root, err := r.cat.info(ctx, commit+"^{tree}")
	if errors.Is(err, errNoObject) || (err != nil && !r.exists()) {
		return nil, fmt.Errorf("reading %s of %s: %w", commit, r.url, ErrNotFetched)
	}
	if err != nil {
		r.markSuspect(ctx, err)
		return nil, fmt.Errorf("reading %s of %s: %w", commit, r.url, err)
	}
	return m.newTree(r, root.id), nil
}

func (m *Manager) newTree(r *handle, root string) *tree {
	if r.access.opened == nil {
		r.access.opened = new(atomic.Int32)
	}
	return &tree{m: m, mirror: r.mirror, access: r.access, root: root, listed: map[string]bool{}, submodules: map[string]*tree{}, contentTrees: map[string]*tree{}}
}

// markSuspect records that an object of a fetched commit could not be read, unless the caller canceled the call,
// limited the size, or memory was exhausted. The next fetch recreates the mirror.
func (r *mirror) markSuspect(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, filetree.ErrTooBig) && !errors.Is(err, errMemory) {
		r.suspect.Store(true)
	}
}

// tree reads one commit of a mirror, and its submodules if the access allows it.
type tree struct {
	m      *Manager
	mirror *mirror
	access Access
	root   string

	mu           sync.Mutex
	listed       map[string]bool  // listed folders, whose missing files are fetched together
	submodules   map[string]*tree // by path
	contentTrees map[string]*tree // the trees of files in submodules, by object id
	urls         map[string]string
}

// submoduleSuffix distinguishes the ids of folders with submodules from those without: their contents differ.
const submoduleSuffix = "+submodules"

func (t *tree) ID(ctx context.Context, name string) (string, error) {
	if !t.access.Submodules {
		return t.id(ctx, name)
	}
	at, rest, err := t.resolve(ctx, name)
	if err != nil {
		return "", err
	}
	id, err := at.id(ctx, rest)
	if err != nil {
		return "", err
	}
	return id + submoduleSuffix, nil
}

// id is ID without submodules.
func (t *tree) id(ctx context.Context, name string) (string, error) {
	id := t.root
	for element := range pathElements(name) {
		entries, err := t.readFolder(ctx, id)
		if err != nil {
			return "", err
		}
		i, found := slices.BinarySearchFunc(entries, element, func(e filetree.Entry, name string) int {
			return cmp.Compare(e.Name, name)
		})
		if found && entries[i].Mode == filetree.Submodule {
			return "", &filetree.Error{Path: name, Problem: "it is in a submodule, and submodules are not enabled for this repository: enable them with kedge repo set URL --submodules"}
		}
		if !found || entries[i].Mode != filetree.Dir {
			return "", fmt.Errorf("opening the folder %q: %w", name, fs.ErrNotExist)
		}
		id = entries[i].ID
	}
	return id, nil
}

// pathElements yields the elements of a path; none for the root.
func pathElements(name string) func(func(string) bool) {
	name = path.Clean(name)
	if name == "." || name == "/" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(strings.Trim(name, "/"), "/")
}

func (t *tree) List(ctx context.Context, name string) ([]filetree.Entry, error) {
	if t.access.Submodules {
		return t.listWithSubmodules(ctx, name)
	}
	return t.list(ctx, name)
}

// list is List without submodules.
func (t *tree) list(ctx context.Context, name string) ([]filetree.Entry, error) {
	id, err := t.id(ctx, name)
	if err != nil {
		return nil, err
	}
	entries, err := t.readFolder(ctx, id)
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
	owner := t.contentTrees[e.ID]
	t.mu.Unlock()
	if owner != nil {
		return owner.Read(ctx, e, limit)
	}
	_, content, err := t.mirror.cat.read(ctx, e.ID, limit)
	if errors.Is(err, errNoObject) && t.mirror.partial.Load() {
		if err := t.fetchContent(ctx, e); err != nil {
			return nil, fmt.Errorf("reading %q: %w", e.Name, err)
		}
		_, content, err = t.mirror.cat.read(ctx, e.ID, limit)
	}
	if err != nil {
		t.mirror.markSuspect(ctx, err)
		return nil, fmt.Errorf("reading %q: %w", e.Name, err)
	}
	return content, nil
}

// fetchContent fetches the content of a file, together with files of the same extension in the listed folders,
// because readers usually read all of them.
func (t *tree) fetchContent(ctx context.Context, e filetree.Entry) error {
	t.mu.Lock()
	folders := slices.Collect(maps.Keys(t.listed))
	t.mu.Unlock()
	wanted := map[string]bool{e.ID: true}
	for _, id := range folders {
		entries, err := t.readFolder(ctx, id)
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

// readFolder returns the entries of a tree object, sorted by name. They are shared: callers must not change them.
func (t *tree) readFolder(ctx context.Context, id string) ([]filetree.Entry, error) {
	if entries, ok := t.mirror.trees.Get(id); ok {
		return entries, nil
	}
	found, data, err := t.mirror.cat.read(ctx, id, maxTreeBytes)
	if err != nil {
		t.mirror.markSuspect(ctx, err)
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

// maxName limits names like file systems do. Git allows megabytes, and parsed folders are cached.
const maxName = 255

var errBadTree = errors.New("git returned a malformed tree")

// parseTree parses git's format of a folder: for each entry the mode in octal, a space, the name, a NUL, and the
// twenty bytes of the object id.
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
			return nil, &filetree.Error{Path: name[:60] + "…", Problem: fmt.Sprintf("the name has %d bytes, but file systems allow at most %d: rename it", len(name), maxName)}
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
	// git sorts folders as if their names ended in a slash.
	slices.SortFunc(entries, func(a, b filetree.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}
