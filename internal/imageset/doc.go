// Package imageset changes which images a deployment runs, in the files that say so: the images of a
// Kustomize overlay, the values of a Helm chart, or the pods of plain manifests. It reads a tree and
// returns the new content of files; committing them is somebody else's work.
//
// A file is never written anew from what was parsed: the scalars that have to change are replaced where
// they stand, so that comments, quoting, order, anchors, line endings and everything else stay as their
// authors left them. What comes of it is parsed again and compared before it is returned, so that a
// file which is written in a way that this package does not understand is refused, not damaged.
//
// Only files that a deployment itself names are changed: the kustomization at its path, its values
// files, the values of the chart at its path, and the files that its globs match. Symbolic links are
// not followed.
package imageset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/plain"
)

// MaxChanges bounds how many images one request may change.
const MaxChanges = 100

// Change asks for an image to be set.
type Change struct {
	Name string // of the image, without tag, as it is written or in full: nginx is docker.io/library/nginx
	Ref  string // what it becomes: repo:tag, repo@digest, :tag or @digest
}

// Request says where to look. Kind is one of those that a render may have; it is not detected here.
type Request struct {
	Kind    fleet.SourceKind
	Path    string // folder in the tree
	Globs   []string
	Helm    fleet.Helm
	Limits  plain.Limits
	Changes []Change
}

// Place is where an image is stated.
type Place struct {
	File   string
	Line   int    // counted from 1; 0 when it is not in a file
	Object string // kind and name of the object, for manifests
	Field  string // path to the field
	Image  string // the whole image as it is now
	New    string // as it becomes; equal to Image when nothing changes, "" in a listing
	// Old and Text are what is written in the file before and after, which may be a part of the image.
	Old, Text string
	Note      string // what a reader should know, such as an anchor that others use as well
	Fixed     string // why it cannot be changed in Git; "" when it can
}

// Result is what a request comes to.
type Result struct {
	Edits  map[string][]byte // new content by path; empty when everything is as asked for
	Places []Place           // that were asked for, in the order of files and lines
}

// Error is a user's mistake: in the request, or in what the files hold.
type Error struct {
	File    string // "" when the request is meant
	Problem string
}

func (e *Error) Error() string {
	if e.File == "" {
		return e.Problem
	}
	return e.File + ": " + e.Problem
}

func problem(file, format string, args ...any) error {
	return &Error{File: file, Problem: fmt.Sprintf(format, args...)}
}

// Set returns what has to be written so that every change holds. A change that matches no image is an
// [*Error] that lists those that are there; then nothing is returned.
func Set(ctx context.Context, tree filetree.Tree, req Request) (*Result, error) {
	wanted, err := parseChanges(req.Changes)
	if err != nil {
		return nil, err
	}
	s := newSearch(tree, req)
	sites, err := s.sites(ctx)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, w := range wanted {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.grant()
		found, err := s.apply(sites, w)
		if err != nil {
			return nil, err
		}
		places = append(places, found...)
	}
	edits, err := s.finish()
	if err != nil {
		return nil, err
	}
	sortPlaces(places)
	return &Result{Edits: edits, Places: places}, nil
}

// List returns every image that can be found without rendering.
func List(ctx context.Context, tree filetree.Tree, req Request) ([]Place, error) {
	s := newSearch(tree, req)
	sites, err := s.sites(ctx)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, site := range sites {
		places = append(places, site.place())
	}
	if err := s.bounded(); err != nil {
		return nil, err
	}
	sortPlaces(places)
	return slices.Compact(places), nil
}

func sortPlaces(places []Place) {
	slices.SortStableFunc(places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
}

// site is one image that a request may change.
type site interface {
	// image is the whole image as it is now.
	image() string
	// matches reports whether a name means this image.
	matches(name string) bool
	// set makes the edits for ref and returns where they are.
	set(ref Ref) ([]Place, error)
	// place is where the image is stated.
	place() Place
}

// apply sets every site that a change means.
func (s *search) apply(sites []site, w wanted) ([]Place, error) {
	var places []Place
	for _, site := range sites {
		if !site.matches(w.Name) {
			continue
		}
		found, err := site.set(w.ref)
		if err != nil {
			return nil, cmp.Or(s.bounded(), err)
		}
		places = append(places, found...)
	}
	if err := s.bounded(); err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return nil, problem("", "no image %q was found%s; there are: %s", w.Name, s.where(), listing(sites))
	}
	return places, nil
}

// maxListed bounds how many images an error names.
const maxListed = 30

func listing(sites []site) string {
	images := map[string]bool{}
	for _, site := range sites {
		images[site.image()] = true
	}
	delete(images, "")
	names := slices.Sorted(maps.Keys(images))
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxListed:
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
