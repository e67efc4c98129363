package imageset

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// maxOverlays is the maximum depth of nested overlays.
const maxOverlays = 20

// resources finds the images that the resources of an overlay use, as the images of the overlay see them.
type resources struct {
	search *search
	seen   map[string]bool // files and folders, to end cycles
}

// used returns the images that reach the kustomization of a folder, by name.
func (r *resources) used(ctx context.Context, folder string, depth int) (map[string]Place, error) {
	used := map[string]Place{}
	if depth == 0 || r.seen[folder] {
		return used, nil
	}
	r.seen[folder] = true
	f, err := r.search.kustomization(ctx, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return used, nil
	}
	if err != nil {
		return nil, err
	}
	k := target(root(f.docs[0]))
	for _, key := range []string{"resources", "bases", "components", "patchesStrategicMerge"} {
		for _, name := range texts(f.find(k, key)) {
			if err := r.add(ctx, used, f, name, key == "components", depth); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range []string{"patches", "patchesJson6902"} {
		for _, patch := range items(f.find(k, key)) {
			if err := r.add(ctx, used, f, text(f.lookUp(patch, "path")), false, depth); err != nil {
				return nil, err
			}
			if err := inline(used, f, text(f.lookUp(patch, "patch"))); err != nil {
				return nil, err
			}
		}
	}
	return used, nil
}

// add adds the images of a resource of a kustomization: a file, a folder with a kustomization, or an inline
// patch.
func (r *resources) add(ctx context.Context, used map[string]Place, of *file, name string, component bool, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if name == "" || strings.ContainsAny(name, "\n:?") {
		return inline(used, of, name) // an inline patch, or not in this repository
	}
	if !of.spend(len(name)) {
		return of.bounded()
	}
	where := path.Join(path.Dir(of.path), name)
	if where == ".." || strings.HasPrefix(where, "../") || path.IsAbs(name) {
		return nil
	}
	e, err := r.search.entry(ctx, where)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // the render reports it with a better message
	case err != nil:
		return err
	case e.Mode == filetree.Dir:
		return r.addFolder(ctx, used, where, component, depth)
	case e.Mode != filetree.File:
		return nil
	}
	f, err := r.search.open(ctx, where)
	var mistake *Error
	if errors.As(err, &mistake) {
		return nil // not a mistake in this file
	}
	if err != nil {
		return err
	}
	return collect(used, f)
}

// addFolder adds the images of a base or component, with the names that its own images set. A component also
// renames the images that the overlay has collected.
func (r *resources) addFolder(ctx context.Context, used map[string]Place, folder string, component bool, depth int) error {
	below, err := r.used(ctx, folder, depth-1)
	if err != nil {
		return err
	}
	if component {
		for name, p := range below {
			used[name] = p
		}
		below = used
	}
	f, err := r.search.kustomization(ctx, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range items(f.find(target(root(f.docs[0])), "images")) {
		e := entrySite{overlay: &overlay{file: f}, entry: target(entry)}
		name := text(f.find(e.entry, "name"))
		was, ok := below[name]
		if !ok {
			continue
		}
		now := split(was.Image)
		if set := e.now(); set.Tag != "" || set.Digest != "" {
			now = set
		} else {
			now.Repo = set.Repo
		}
		delete(below, name)
		p := e.place()
		p.Image = now.String()
		below[now.Repo] = p
	}
	if !component {
		for name, p := range below {
			used[name] = p
		}
	}
	return f.bounded()
}

// Parsing a patch costs these steps: an alias can repeat it.
const (
	stepsPerPatch     = 200
	stepsPerPatchByte = 4
)

// inline adds the images of an inline patch. Its steps count for the kustomization.
func inline(used map[string]Place, f *file, patch string) error {
	if patch == "" {
		return nil
	}
	if !f.spend(stepsPerPatch + stepsPerPatchByte*len(patch)) {
		return f.bounded()
	}
	docs, err := parse([]byte(patch))
	if err != nil {
		return nil // not a mistake in this file
	}
	return collect(used, &file{path: f.path, docs: docs, steps: f.steps})
}

// collect adds the images of a file: of its pods, and of JSON patches.
func collect(used map[string]Place, f *file) error {
	sites, err := containers(f)
	if err != nil {
		return err
	}
	for _, site := range sites {
		p := site.place()
		used[split(p.Image).Repo] = p
	}
	for _, doc := range f.docs {
		for _, op := range items(root(doc)) {
			if f.spent() {
				break
			}
			value, field := f.lookUp(op, "value"), text(f.lookUp(op, "path"))
			if strings.HasSuffix(field, "/image") && text(value) != "" {
				used[split(text(value)).Repo] = Place{File: f.path, Line: target(value).Line, Field: field, Image: text(value), Old: text(value)}
			}
		}
	}
	return f.bounded()
}

func items(n *yaml.Node) []*yaml.Node {
	n = target(n)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

func texts(n *yaml.Node) []string {
	var out []string
	for _, item := range items(n) {
		if s := text(item); s != "" {
			out = append(out, s)
		}
	}
	return out
}
