package imageset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
)

// kustomize finds the images of an overlay: the entries under images of its kustomization, and the images of
// its resources that have no entry yet.
func (s *search) kustomize(ctx context.Context) ([]site, error) {
	f, err := s.kustomization(ctx, s.req.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem(s.req.Path, "there is no kustomization.yaml")
	}
	if err != nil {
		return nil, err
	}
	k := &overlay{file: f, root: target(root(f.docs[0]))}
	images := target(f.find(k.root, "images"))
	if images != nil && images.Kind == yaml.SequenceNode {
		for _, entry := range images.Content {
			if m := target(entry); m != nil && m.Kind == yaml.MappingNode {
				k.entries = append(k.entries, &entrySite{overlay: k, entry: m})
			}
		}
	}
	r := resources{search: s, seen: map[string]bool{}}
	used, err := r.used(ctx, s.req.Path, maxOverlays)
	if err != nil {
		return nil, err
	}
	var sites []site
	named := map[string]bool{}
	for _, e := range k.entries {
		sites = append(sites, e)
		named[text(f.find(e.entry, "name"))] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !named[name] {
			sites = append(sites, &usedSite{overlay: k, name: name, at: used[name]})
		}
	}
	return sites, nil
}

var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// kustomization opens the kustomization of a folder; fs.ErrNotExist if there is none.
func (s *search) kustomization(ctx context.Context, folder string) (*file, error) {
	for _, name := range kustomizationNames {
		f, err := s.open(ctx, path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(f.docs) != 1 || target(root(f.docs[0])) == nil || target(root(f.docs[0])).Kind != yaml.MappingNode {
			return nil, problem(f.path, "a kustomization is one YAML mapping")
		}
		return f, nil
	}
	return nil, fmt.Errorf("reading the kustomization of %q: %w", folder, fs.ErrNotExist)
}

// overlay is the kustomization that is changed.
type overlay struct {
	file    *file
	root    *yaml.Node
	entries []*entrySite
	made    int // index, from 1, of the splice that created the value of images; 0 if it existed
}

// entrySite is an entry under images.
type entrySite struct {
	overlay *overlay
	entry   *yaml.Node
}

// now returns the image that results from the entry. An empty Tag or Digest means that the entry does not set
// it.
func (e *entrySite) now() Ref {
	repo := text(e.overlay.file.find(e.entry, "newName"))
	if repo == "" {
		repo = text(e.overlay.file.find(e.entry, "name"))
	}
	return Ref{Repo: repo, Tag: text(e.overlay.file.find(e.entry, "newTag")), Digest: text(e.overlay.file.find(e.entry, "digest"))}
}

func (e *entrySite) image() string { return e.now().String() }

func (e *entrySite) matches(name string) bool {
	return sameRepo(text(e.overlay.file.find(e.entry, "name")), name) || sameRepo(e.now().Repo, name)
}

func (e *entrySite) place() Place {
	return Place{
		File: e.overlay.file.path, Line: e.entry.Line, Field: fmt.Sprintf("images[%s]", text(e.overlay.file.find(e.entry, "name"))),
		Image: e.image(), Old: e.image(), Note: shared(e.entry),
	}
}

func (e *entrySite) set(ref Ref) ([]Place, error) {
	p := e.place()
	want := ref.over(e.now())
	p.New, p.Text = want.String(), want.String()
	if want == e.now() {
		return []Place{p}, nil
	}
	f := e.overlay.file
	if want.Repo != e.now().Repo {
		if err := f.put(e.entry, "newName", want.Repo); err != nil {
			return nil, err
		}
	}
	tag, digest := e.overlay.file.find(e.entry, "newTag"), e.overlay.file.find(e.entry, "digest")
	// A key that is removed is replaced by one that is added.
	switch {
	case want.Digest == "" && digest != nil && tag == nil:
		return []Place{p}, e.rename("digest", "newTag", want.Tag)
	case want.Tag == "" && tag != nil && digest == nil:
		return []Place{p}, e.rename("newTag", "digest", want.Digest)
	}
	for _, field := range []struct{ key, value string }{{"newTag", want.Tag}, {"digest", want.Digest}} {
		var err error
		if field.value == "" {
			err = f.remove(e.entry, field.key)
		} else {
			err = f.put(e.entry, field.key, field.value)
		}
		if err != nil {
			return nil, err
		}
	}
	return []Place{p}, nil
}

// rename changes a key of the entry to another key, with a new value.
func (e *entrySite) rename(from, to, value string) error {
	for _, p := range pairs(e.entry) {
		if p.key.Value != from {
			continue
		}
		if !isScalar(p.value) || p.value.Kind == yaml.AliasNode {
			return e.overlay.file.unclear(p.value)
		}
		if err := e.overlay.file.replace(p.key, to); err != nil {
			return err
		}
		return e.overlay.file.replace(p.value, value)
	}
	return nil
}

// usedSite is an image of the resources that has no entry yet.
type usedSite struct {
	overlay *overlay
	name    string // as written in the resources; an entry must use this name
	at      Place  // one of the places that use it
}

func (u *usedSite) image() string { return u.at.Image }

func (u *usedSite) matches(name string) bool { return sameRepo(u.name, name) }

func (u *usedSite) place() Place { return u.at }

func (u *usedSite) set(ref Ref) ([]Place, error) {
	want := ref.over(split(u.at.Image))
	p := Place{
		File: u.overlay.file.path, Line: u.overlay.root.Line, Field: fmt.Sprintf("images[%s]", u.name), Image: u.at.Image,
		New: want.String(), Text: want.String(), Note: "a new entry; the image is used in " + u.at.File,
	}
	if want == split(u.at.Image) {
		p.Old, p.Note = p.Text, "as "+u.at.File+" has it"
		return []Place{p}, nil
	}
	fields := []field{{"name", u.name}}
	for _, f := range []field{{"newName", want.Repo}, {"newTag", want.Tag}, {"digest", want.Digest}} {
		if f.value != "" && !(f.key == "newName" && f.value == u.name) {
			fields = append(fields, f)
		}
	}
	return []Place{p}, u.overlay.add(fields)
}

type field struct{ key, value string }
