package imageset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// search holds the files of a request. Each is opened once.
type search struct {
	tree   filetree.Tree
	req    Request
	files  map[string]*file
	parsed []*file // those, and inline values
	left   int64   // bytes that may still be read
	count  int     // files that may still be opened
}

func newSearch(tree filetree.Tree, req Request) *search {
	req.Limits = req.Limits.OrDefault()
	req.Path = path.Clean(strings.TrimLeft(req.Path, "/"))
	return &search{tree: tree, req: req, files: map[string]*file{}, left: req.Limits.TotalBytes, count: req.Limits.Files}
}

// sites finds the images of the request.
func (s *search) sites(ctx context.Context) ([]site, error) {
	if s.req.Path == ".." || strings.HasPrefix(s.req.Path, "../") {
		return nil, problem("", "the path %q leaves the repository", s.req.Path)
	}
	switch s.req.Kind {
	case fleet.SourceKustomize:
		return s.kustomize(ctx)
	case fleet.SourceHelm:
		return s.helm(ctx)
	default:
		return s.plain(ctx)
	}
}

// where describes the searched files, for errors.
func (s *search) where() string {
	switch s.req.Kind {
	case fleet.SourceKustomize:
		return fmt.Sprintf(" in the overlay %q and the files that it names in this repository (other sources are not searched: add an entry under images yourself)", s.req.Path)
	case fleet.SourceHelm:
		return fmt.Sprintf(" in the values of the chart %q", s.req.Path)
	}
	return fmt.Sprintf(" in the manifests below %q", s.req.Path)
}

// entry finds a regular file; fs.ErrNotExist if there is none.
func (s *search) entry(ctx context.Context, name string) (filetree.Entry, error) {
	entries, err := s.tree.List(ctx, path.Dir(name))
	if err != nil {
		return filetree.Entry{}, err
	}
	i := slices.IndexFunc(entries, func(e filetree.Entry) bool { return e.Name == path.Base(name) })
	if i < 0 {
		return filetree.Entry{}, fmt.Errorf("looking for %q: %w", name, fs.ErrNotExist)
	}
	return entries[i], nil
}

// open reads a file by its path in the tree.
func (s *search) open(ctx context.Context, name string) (*file, error) {
	if f := s.files[name]; f != nil {
		return f, nil
	}
	e, err := s.entry(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.openEntry(ctx, name, e)
}

func (s *search) openEntry(ctx context.Context, name string, e filetree.Entry) (*file, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.Mode != filetree.File {
		return nil, problem(name, "not a regular file: links are not followed when images are set")
	}
	if s.count--; s.count < 0 {
		return nil, problem("", "more than %d files would have to be searched", s.req.Limits.Files)
	}
	data, err := s.tree.Read(ctx, e, min(s.req.Limits.FileBytes, s.left))
	if errors.Is(err, filetree.ErrTooBig) {
		return nil, problem(name, "the file, or all files together, are too large")
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	s.left -= int64(len(data))
	f, err := s.parse(name, data)
	if err != nil {
		return nil, err
	}
	s.files[name] = f
	return f, nil
}

// parse parses the content of a file.
func (s *search) parse(name string, data []byte) (*file, error) {
	f, err := open(name, data)
	if err == nil {
		s.parsed = append(s.parsed, f)
	}
	return f, err
}

// bounded refuses the first file that needed more steps than allowed.
func (s *search) bounded() error {
	for _, f := range s.parsed {
		if err := f.bounded(); err != nil {
			return err
		}
	}
	return nil
}

// finish returns the new content of the files that change.
func (s *search) finish() (map[string][]byte, error) {
	edits := map[string][]byte{}
	for name, f := range s.files {
		data, err := f.finish()
		if err != nil {
			return nil, err
		}
		if data != nil {
			edits[name] = data
		}
	}
	return edits, nil
}
