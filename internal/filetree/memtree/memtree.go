// Package memtree provides a filetree in memory for tests. It counts reads, so that a test can show that a file
// was not read.
package memtree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// Contents that turn an entry into something other than a file.
const (
	Symlink   = "\x00symlink"
	Submodule = "\x00submodule"
)

// Link returns the content of a symbolic link to target.
func Link(target string) string { return Symlink + target }

// Tree is a tree in memory. It is safe for concurrent use.
type Tree struct {
	folders map[string][]filetree.Entry
	content map[string]string // by ID

	mu     sync.Mutex
	listed []string
	read   []string
}

var _ filetree.Tree = (*Tree)(nil)

// New returns a tree with the given files, by path.
func New(files map[string]string) *Tree {
	t := &Tree{folders: map[string][]filetree.Entry{".": nil}, content: map[string]string{}}
	for name, content := range files {
		e := filetree.Entry{Name: path.Base(name), ID: idOf(content)}
		if target, ok := strings.CutPrefix(content, Symlink); ok {
			e.Mode, content = filetree.Symlink, target
		} else if content == Submodule {
			e.Mode = filetree.Submodule
		}
		t.content[e.ID] = content
		t.add(path.Dir(name), e)
	}
	t.sum(".")
	return t
}

func idOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:20])
}

func (t *Tree) add(folder string, e filetree.Entry) {
	if slices.ContainsFunc(t.folders[folder], func(other filetree.Entry) bool { return other.Name == e.Name }) {
		return
	}
	t.folders[folder] = append(t.folders[folder], e)
	if folder != "." {
		t.add(path.Dir(folder), filetree.Entry{Name: path.Base(folder), Mode: filetree.Dir})
	}
}

// sum sorts the folder at name and the folders below it, and computes their IDs.
func (t *Tree) sum(name string) string {
	entries := t.folders[name]
	slices.SortFunc(entries, func(a, b filetree.Entry) int { return cmp.Compare(a.Name, b.Name) })
	var text strings.Builder
	for i := range entries {
		if entries[i].Mode == filetree.Dir {
			entries[i].ID = t.sum(path.Join(name, entries[i].Name))
		}
		fmt.Fprintf(&text, "%q %d %s\n", entries[i].Name, entries[i].Mode, entries[i].ID)
	}
	return idOf(text.String())
}

// ID implements filetree.Tree.
func (t *Tree) ID(_ context.Context, name string) (string, error) {
	if _, ok := t.folders[path.Clean(name)]; !ok {
		return "", fmt.Errorf("reading the folder %q: %w", name, fs.ErrNotExist)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum(path.Clean(name)), nil
}

// List implements filetree.Tree.
func (t *Tree) List(_ context.Context, name string) ([]filetree.Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = append(t.listed, name)
	entries, ok := t.folders[path.Clean(name)]
	if !ok {
		return nil, fmt.Errorf("listing %q: %w", name, fs.ErrNotExist)
	}
	return slices.Clone(entries), nil
}

// Read implements filetree.Tree.
func (t *Tree) Read(_ context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = append(t.read, e.Name)
	content, ok := t.content[e.ID]
	if !ok {
		return nil, fmt.Errorf("reading %q: %w", e.Name, fs.ErrNotExist)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("reading %q: %w", e.Name, filetree.ErrTooBig)
	}
	return []byte(content), nil
}

// Listed returns the folders that were listed, in order.
func (t *Tree) Listed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.listed)
}

// Reads returns the number of files that were read.
func (t *Tree) Reads() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.read)
}
