package treefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
)

const (
	// maxHops limits the number of links on one path, as in Linux.
	maxHops = 40
	// maxNoted limits the total length of recorded paths, in bytes: a renderer may search for long names that
	// do not exist.
	maxNoted = 32 << 20
	// maxTarget limits the length of a link target: the longest path in Linux.
	maxTarget = 4096
)

// place is the node that a path leads to.
type place struct {
	path  string // without links
	entry filetree.Entry
}

func (p place) kind() Kind {
	if p.entry.Mode == filetree.Dir {
		return Dir
	}
	return File
}

// resolve follows name and records everything that the result depends on: each link on the path, and its end,
// whether it exists or not.
func (f *FS) resolve(ctx context.Context, name string) (place, error) {
	rest, err := split(name)
	if err != nil {
		return place{}, err
	}
	if len(f.notes) > f.limits.Entries || f.noted > maxNoted {
		return place{}, problem(name, "more than %d files and folders, or too long names, were searched for", f.limits.Entries)
	}
	at := place{path: ".", entry: filetree.Entry{Name: ".", Mode: filetree.Dir}}
	for hops := 0; len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		if next == ".." {
			if at.path == "." {
				return place{}, problem(name, "a symbolic link on this path leads out of the repository")
			}
			f.note(at.path, noteNode) // the result of .. depends on whether this is a folder
			at = place{path: path.Dir(at.path), entry: filetree.Entry{Mode: filetree.Dir}}
			continue
		}
		where := path.Join(at.path, next)
		entry, found, err := f.folders.find(ctx, at.path, next)
		if err != nil {
			return place{}, err
		}
		if !found || entry.Mode == filetree.File && len(rest) > 0 {
			f.note(where, noteNode)
			return place{}, fmt.Errorf("searching for %q: %w", name, fs.ErrNotExist)
		}
		switch entry.Mode {
		case filetree.Submodule:
			f.note(where, noteNode)
			return place{}, problem(where, "a submodule, which is not fetched: keep the files in this repository, or deploy the other repository separately")
		case filetree.Symlink:
			f.note(where, noteNode)
			if hops++; hops > maxHops {
				return place{}, problem(name, "more than %d symbolic links on one path: they are circular", maxHops)
			}
			target, err := f.target(ctx, where, entry)
			if err != nil {
				return place{}, err
			}
			rest = slices.Concat(target, rest)
		default:
			at = place{path: where, entry: entry}
		}
	}
	f.note(at.path, noteNode)
	return at, nil
}

// target reads the target of a link, as a list of names.
func (f *FS) target(ctx context.Context, where string, link filetree.Entry) ([]string, error) {
	data, err := f.tree.Read(ctx, link, maxTarget)
	if errors.Is(err, filetree.ErrTooBig) {
		return nil, problem(where, "a symbolic link whose target is longer than %d bytes", maxTarget)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the symbolic link %q: %w", where, err)
	}
	target := string(data)
	switch {
	case target == "" || strings.ContainsRune(target, 0):
		return nil, problem(where, "a symbolic link without a usable target")
	case path.IsAbs(target):
		return nil, problem(where, "a symbolic link to the absolute path %q, which is never followed: link to a relative path inside the repository", target)
	}
	return names(target), nil
}

// split validates a path and splits it into names.
func split(name string) ([]string, error) {
	if strings.ContainsRune(name, 0) {
		return nil, problem(strings.ReplaceAll(name, "\x00", "?"), "the path contains a NUL byte")
	}
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, problem(name, "the path leaves the repository")
	}
	return names(clean), nil
}

// names splits a path and drops names that mean the same folder.
func names(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(name string) bool { return name == "" || name == "." })
}

// folders lists each folder of a tree only once.
type folders struct {
	tree   filetree.Tree
	listed map[string][]filetree.Entry
}

// list returns the entries of the folder at a path without links.
func (f *folders) list(ctx context.Context, folder string) ([]filetree.Entry, error) {
	if entries, ok := f.listed[folder]; ok {
		return entries, nil
	}
	entries, err := f.tree.List(ctx, folder)
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", folder, err)
	}
	f.listed[folder] = entries
	return entries, nil
}

// find returns the entry of a name in an existing folder.
func (f *folders) find(ctx context.Context, folder, name string) (filetree.Entry, bool, error) {
	entries, err := f.list(ctx, folder)
	if err != nil {
		return filetree.Entry{}, false, err
	}
	i, found := slices.BinarySearchFunc(entries, name, func(e filetree.Entry, name string) int { return strings.Compare(e.Name, name) })
	if !found {
		return filetree.Entry{}, false, nil
	}
	return entries[i], true, nil
}

// lookup finds the entry at a path without following links. If there is none, found is false, and entry is the
// one that blocks the path, if any.
func (f *folders) lookup(ctx context.Context, name string) (entry filetree.Entry, found bool, err error) {
	entry, folder := filetree.Entry{Name: ".", Mode: filetree.Dir}, "."
	for _, next := range names(name) {
		if entry.Mode != filetree.Dir {
			return entry, false, nil
		}
		if entry, found, err = f.find(ctx, folder, next); err != nil || !found {
			return filetree.Entry{}, false, err
		}
		folder = path.Join(folder, next)
	}
	return entry, true, nil
}
