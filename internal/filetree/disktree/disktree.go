// Package disktree provides a folder on disk as a filetree, for files that a user has not committed yet. It
// skips folders called .git, and a folder that contains one is a submodule. A reader may or may not see
// concurrent changes on disk.
package disktree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// gitFolder is the folder with Git's own data.
const gitFolder = ".git"

// Tree is a folder on disk. Reads never leave the folder: symbolic links are entries and are not followed.
type Tree struct {
	root *os.Root

	mu    sync.Mutex
	paths map[string]string // paths of files and links, by ID
}

var _ filetree.Tree = (*Tree)(nil)

// Open opens the folder dir. Close releases it.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %q: %w", dir, err)
	}
	return &Tree{root: root, paths: map[string]string{}}, nil
}

// Close releases the folder.
func (t *Tree) Close() error { return t.root.Close() }

// ID implements filetree.Tree. It reads every file below the folder.
func (t *Tree) ID(ctx context.Context, name string) (string, error) {
	entries, err := t.List(ctx, name)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, e := range entries {
		if e.Mode == filetree.Dir {
			if e.ID, err = t.ID(ctx, path.Join(name, e.Name)); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(hash, "%q %d %s\n", e.Name, e.Mode, e.ID)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// List implements filetree.Tree. The IDs of files are hashes of their content; folders have no ID.
func (t *Tree) List(ctx context.Context, name string) ([]filetree.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found, err := fs.ReadDir(t.root.FS(), path.Clean(name))
	if errors.Is(err, fs.ErrNotExist) || err != nil && t.isFile(name) {
		return nil, fmt.Errorf("listing %q: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", name, err)
	}
	var entries []filetree.Entry
	for _, f := range found {
		if f.Name() == gitFolder {
			continue
		}
		e, ok, err := t.entry(path.Join(name, f.Name()), f)
		if err != nil {
			return nil, err
		}
		if ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b filetree.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

func (t *Tree) isFile(name string) bool {
	info, err := t.root.Lstat(path.Clean(name))
	return err == nil && !info.IsDir()
}

// entry describes the file at name. ok is false for types that Git does not store, such as sockets.
func (t *Tree) entry(name string, f fs.DirEntry) (e filetree.Entry, ok bool, err error) {
	e.Name = f.Name()
	switch {
	case f.IsDir():
		e.Mode = filetree.Dir
		if _, err := t.root.Lstat(path.Join(name, gitFolder)); err == nil {
			e.Mode = filetree.Submodule
		}
		return e, true, nil
	case f.Type() == fs.ModeSymlink:
		e.Mode = filetree.Symlink
		target, err := t.root.Readlink(name)
		if err != nil {
			return e, false, fmt.Errorf("reading the symbolic link %q: %w", name, err)
		}
		e.ID, err = t.remember(name, "link-", strings.NewReader(target))
		return e, true, err
	case f.Type().IsRegular():
		file, err := t.root.Open(name)
		if err != nil {
			return e, false, fmt.Errorf("opening %q: %w", name, err)
		}
		defer file.Close()
		e.ID, err = t.remember(name, "", file)
		return e, true, err
	}
	return e, false, nil
}

// remember returns the hash of prefix and content, and records the path under it.
func (t *Tree) remember(name, prefix string, content io.Reader) (string, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, content); err != nil {
		return "", fmt.Errorf("reading %q: %w", name, err)
	}
	id := prefix + hex.EncodeToString(hash.Sum(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paths[id] = name
	return id, nil
}

// Read implements filetree.Tree.
func (t *Tree) Read(ctx context.Context, e filetree.Entry, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	name, ok := t.paths[e.ID]
	t.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("reading %q: %w", e.Name, fs.ErrNotExist)
	}
	if e.Mode == filetree.Symlink {
		target, err := t.root.Readlink(name)
		if err == nil && int64(len(target)) > limit {
			err = filetree.ErrTooBig
		}
		if err != nil {
			return nil, fmt.Errorf("reading the symbolic link %q: %w", name, err)
		}
		return []byte(target), nil
	}
	file, err := t.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", name, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("reading %q: %w", name, filetree.ErrTooBig)
	}
	return data, nil
}
