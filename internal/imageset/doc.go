// Package imageset changes the images of a deployment in the files that define them: the images of a Kustomize
// overlay, the values of a Helm chart, or the pods of plain manifests. It reads a tree and returns the new
// content of files. It does not commit them.
//
// It never writes a file from its parsed form. It replaces only the scalars that change, so that comments,
// quoting, order, anchors, line endings, and everything else stay unchanged. It parses the result again and
// compares it before it returns it: a file in a form that this package does not understand is refused, not
// damaged.
//
// It changes only files that the deployment itself names: the kustomization at its path, its values files, the
// values of the chart at its path, and the files that match its globs. It does not follow symbolic links.
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

// MaxChanges is the maximum number of images in one request.
const MaxChanges = 100

// Change sets one image.
type Change struct {
	Name string // name of the image without tag, as written or in full: nginx is docker.io/library/nginx
	Ref  string // new reference: repo:tag, repo@digest, :tag, or @digest
}

// Request defines where to search. Kind is a kind that a render may have; it is not detected here.
type Request struct {
	Kind    fleet.SourceKind
	Path    string // folder in the tree
	Globs   []string
	Helm    fleet.Helm
	Limits  plain.Limits
	Changes []Change
}

// Place is a place in a file that contains an image.
type Place struct {
	File   string
	Line   int    // counted from 1; 0 if it is not in a file
	Object string // kind and name of the object, for manifests
	Field  string // path to the field
	Image  string // the complete current image
	New    string // the complete new image; equal to Image if nothing changes, "" in a listing
	// Old and Text are the text in the file before and after the change, which may be a part of the image.
	Old, Text string
	Note      string // information for the reader, such as an anchor that is used elsewhere too
	Fixed     string // why it cannot be changed in Git; "" if it can
}

// Result is the result of a request.
type Result struct {
	Edits  map[string][]byte // new content by path; empty if nothing changes
	Places []Place           // places of the requested images, in the order of files and lines
}

// Error is a mistake of a user, in the request or in the files.
type Error struct {
	File    string // "" if the request is wrong
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

// Set returns the edits that make every change. A change that matches no image is an [*Error] that lists the
// existing images.
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

// List returns every image that can be found without a render.
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
	// image returns the complete current image.
	image() string
	// matches reports whether a name refers to this image.
	matches(name string) bool
	// set records the edits for ref and returns their places.
	set(ref Ref) ([]Place, error)
	// place returns where the image is written.
	place() Place
}

// apply sets every site that a change matches.
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

// maxListed is the maximum number of images in an error.
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
