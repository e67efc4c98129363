package plain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Limits are the limits of one render. Zero fields mean the default.
type Limits struct {
	Globs      int   // patterns in a request
	Files      int   // files that match
	Entries    int   // names that are visited to find them
	FileBytes  int64 // of one file
	TotalBytes int64 // of all files
	Objects    int   // in the result
	// Time limits the search for files, and the parsing of files, without the time to fetch them. A started
	// file is finished.
	Time time.Duration
}

// Key returns the limits that influence the result of a completed render.
func (l Limits) Key() string {
	return fmt.Sprintf("{Globs:%d Files:%d Entries:%d FileBytes:%d TotalBytes:%d Objects:%d}", l.Globs, l.Files, l.Entries, l.FileBytes, l.TotalBytes, l.Objects)
}

// DefaultLimits are generous for real folders, and fit an agent with half a gigabyte of memory.
func DefaultLimits() Limits {
	return Limits{
		Globs:      100,
		Files:      10_000,
		Entries:    500_000,
		FileBytes:  5 << 20,
		TotalBytes: 20 << 20,
		Objects:    10_000,
		Time:       30 * time.Second,
	}
}

// OrDefault fills in the default for zero fields.
func (l Limits) OrDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Globs:      cmp.Or(l.Globs, d.Globs),
		Files:      cmp.Or(l.Files, d.Files),
		Entries:    cmp.Or(l.Entries, d.Entries),
		FileBytes:  cmp.Or(l.FileBytes, d.FileBytes),
		TotalBytes: cmp.Or(l.TotalBytes, d.TotalBytes),
		Objects:    cmp.Or(l.Objects, d.Objects),
		Time:       cmp.Or(l.Time, d.Time),
	}
}

// File is one file that a render reads.
type File struct {
	Path  string // in the tree
	Entry filetree.Entry
}

// Select finds the files below folder that match the globs, sorted by path, without reading any. No globs mean
// fleet.DefaultGlob. A user error is an [*Error]. roots are the folders below folder that contain selected
// files and a kustomization file that is not selected.
func Select(ctx context.Context, tree filetree.Tree, folder string, globs []string, limits Limits) (files []File, roots []string, err error) {
	folder, err = cleanFolder(folder)
	if err != nil {
		return nil, nil, err
	}
	limits = limits.OrDefault()
	if len(globs) == 0 {
		globs = []string{fleet.DefaultGlob}
	}
	if len(globs) > limits.Globs {
		return nil, nil, problem("", "%d globs are more than the %d that are allowed", len(globs), limits.Globs)
	}
	w := walker{tree: tree, folder: folder, limits: limits, watch: startWatch(limits)}
	for _, text := range globs {
		g, err := compileGlob(text)
		if err != nil {
			return nil, nil, err
		}
		w.globs = append(w.globs, g)
	}
	if err := w.walk(ctx, "."); err != nil {
		return nil, nil, err
	}
	if err := w.checkBases(ctx); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(w.files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return w.files, w.usedRoots(), nil
}

// usedRoots returns the roots that contain a selected file.
func (w *walker) usedRoots() []string {
	return slices.DeleteFunc(w.roots, func(root string) bool {
		return !slices.ContainsFunc(w.files, func(f File) bool { return strings.HasPrefix(f.Path, root+"/") })
	})
}

// Kustomizations are the names of kustomization files.
var Kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// cleanFolder accepts "", ".", "/", "apps/a", "/apps/a/", and similar.
func cleanFolder(folder string) (string, error) {
	if strings.ContainsRune(folder, 0) {
		return "", problem("", "the path contains a NUL byte")
	}
	clean := path.Clean(strings.TrimLeft(folder, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", problem(folder, "the path leaves the repository")
	}
	return clean, nil
}

type walker struct {
	tree    filetree.Tree
	folder  string
	globs   []glob
	limits  Limits
	watch   *stopwatch
	entries int
	files   []File
	roots   []string // folders below w.folder whose kustomization file is not selected
}

// walk visits the folder dir, relative to w.folder, and the folders below it.
func (w *walker) walk(ctx context.Context, dir string) error {
	where := within(w.folder, dir)
	if err := w.watch.check(ctx, where); err != nil {
		return err
	}
	var entries []filetree.Entry
	var err error
	w.watch.waitFor(func() { entries, err = w.tree.List(ctx, where) })
	if errors.Is(err, fs.ErrNotExist) {
		return w.explainMissing(ctx, where)
	}
	if err != nil {
		return fmt.Errorf("listing %q: %w", where, err)
	}
	if w.entries += len(entries); w.entries > w.limits.Entries {
		return problem(w.folder, "more than %d files and folders would have to be searched: use a folder or globs with fewer", w.limits.Entries)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Mode == filetree.Dir {
			if isHidden(e.Name) || !w.reaches(name) {
				continue
			}
			if err := w.walk(ctx, name); err != nil {
				return err
			}
			continue
		}
		if err := w.visit(name, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) reaches(dir string) bool {
	return slices.ContainsFunc(w.globs, func(g glob) bool { return g.reaches(dir) })
}

func (w *walker) visit(name string, e filetree.Entry) error {
	var matched *glob
	for i := range w.globs {
		g := &w.globs[i]
		if !g.matches(name) {
			continue
		}
		if matched != nil {
			return problem(within(w.folder, name), "the globs %q and %q both match it: a file may be read once", matched.text, g.text)
		}
		matched = g
	}
	if matched == nil {
		if path.Dir(name) != "." && slices.Contains(Kustomizations, e.Name) {
			w.roots = append(w.roots, within(w.folder, path.Dir(name)))
		}
		return nil
	}
	where := within(w.folder, name)
	switch e.Mode {
	case filetree.Symlink:
		return problem(where, "a symbolic link, which is never followed: replace it by the file, or exclude it from the glob %q", matched.text)
	case filetree.Submodule:
		return problem(where, submoduleProblem)
	}
	if len(w.files) == w.limits.Files {
		return problem(w.folder, "more than %d files match: use a folder or globs with fewer", w.limits.Files)
	}
	w.files = append(w.files, File{Path: where, Entry: e})
	return nil
}

// checkBases refuses globs with a missing folder, which is probably mistyped.
func (w *walker) checkBases(ctx context.Context) error {
	for _, g := range w.globs {
		if g.base == "." {
			continue
		}
		where := within(w.folder, g.base)
		_, err := w.tree.ID(ctx, where)
		if errors.Is(err, fs.ErrNotExist) {
			return w.explainMissing(ctx, where)
		}
		if err != nil {
			return fmt.Errorf("searching for %q: %w", where, err)
		}
	}
	return nil
}

const submoduleProblem = "a submodule, which is not read: allow submodules with kedge repo set URL --submodules, or deploy the repository of the submodule"

// explainMissing returns why there is no folder at where.
func (w *walker) explainMissing(ctx context.Context, where string) error {
	parent, name := path.Split(where)
	entries, err := w.tree.List(ctx, path.Clean(cmp.Or(parent, ".")))
	if err == nil {
		for _, e := range entries {
			switch {
			case e.Name != name:
			case e.Mode == filetree.Symlink:
				return problem(where, "a symbolic link, which is never followed: use the folder that it points to")
			case e.Mode == filetree.Submodule:
				return problem(where, submoduleProblem)
			case e.Mode == filetree.File:
				return problem(where, "a file, not a folder: use its folder and a glob for the file")
			}
		}
	}
	return &Error{Path: where, Reason: fleet.ReasonPathNotFound, Problem: "there is no such folder at this revision"}
}
