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
	// maxHops is how many links may be followed on one path, as Linux has it.
	maxHops = 40
	// maxNoted bounds the paths that are noted, in bytes: who looks for what is not there may look for long
	// names.
	maxNoted = 32 << 20
	// maxTarget bounds the text of a link: the longest path that Linux takes.
	maxTarget = 4096
)

// place is what a path leads to.
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

// resolve follows name to what is there and notes everything that this depends on: each link on the
// way, and the end of it, be it there or not.
func (f *FS) resolve(ctx context.Context, name string) (place, error) {
	rest, err := split(name)
	if err != nil {
		return place{}, err
	}
	if len(f.notes) > f.limits.Entries || f.noted > maxNoted {
		return place{}, problem(name, "more than %d files and folders, or too long names, were looked for", f.limits.Entries)
	}
	at := place{path: ".", entry: filetree.Entry{Name: ".", Mode: filetree.Dir}}
	for hops := 0; len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		if next == ".." {
			if at.path == "." {
				return place{}, problem(name, "a symbolic link on this path leads out of the repository")
			}
			f.note(at.path, noteNode) // that it is a folder decides where .. leads
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
			return place{}, fmt.Errorf("looking for %q: %w", name, fs.ErrNotExist)
		}
		switch entry.Mode {
		case filetree.Submodule:
			f.note(where, noteNode)
			return place{}, problem(where, "a submodule, which is not fetched: keep the files themselves in this repository, or deploy the other one by itself")
		case filetree.Symlink:
			f.note(where, noteNode)
			if hops++; hops > maxHops {
				return place{}, problem(name, "more than %d symbolic links on one path: they lead in a circle", maxHops)
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

// target reads where a link leads, as names one after another.
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
		return nil, problem(where, "a symbolic link to the absolute path %q, which is never followed: link to a relative path inside of the repository", target)
	}
	return names(target), nil
}

// split checks a path that a renderer asks for and parts it into names.
func split(name string) ([]string, error) {
	if strings.ContainsRune(name, 0) {
		return nil, problem(strings.ReplaceAll(name, "\x00", "?"), "the path holds a NUL byte")
	}
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, problem(name, "the path leaves the repository")
	}
	return names(clean), nil
}

// names parts a path; what stands for the same folder is left out.
func names(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(name string) bool { return name == "" || name == "." })
}

// folders lists each folder of a tree once.
type folders struct {
	tree   filetree.Tree
	listed map[string][]filetree.Entry
}

// list returns what the folder at a path without links holds.
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

// find looks for a name in a folder that is there.
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

// lookup finds the entry at a path without following links. When there is none, found is false, and entry
// is what stands in the way, if anything does.
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
