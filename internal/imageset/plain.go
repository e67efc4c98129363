package imageset

import (
	"context"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/render/plain"
)

// plain finds the images of manifests.
func (s *search) plain(ctx context.Context) ([]site, error) {
	files, _, err := plain.Select(ctx, s.tree, s.req.Path, s.req.Globs, s.req.Limits)
	if err != nil {
		return nil, err
	}
	var sites []site
	for _, selected := range files {
		f, err := s.openEntry(ctx, selected.Path, selected.Entry)
		if err != nil {
			return nil, err
		}
		found, err := containers(f)
		if err != nil {
			return nil, err
		}
		sites = append(sites, found...)
	}
	return sites, nil
}

// containers finds the containers of every pod, or of values that look like one, in a file.
func containers(f *file) ([]site, error) {
	w := podWalker{file: f, seen: map[*yaml.Node]bool{}}
	for _, doc := range f.docs {
		w.object = f.objectName(root(doc))
		w.walk(root(doc), "", "")
	}
	return w.found, f.bounded()
}

func (f *file) objectName(n *yaml.Node) string {
	kind, name := text(f.lookUp(n, "kind")), text(f.lookUp(f.lookUp(n, "metadata"), "name"))
	if kind == "" || name == "" {
		return kind
	}
	return kind + "/" + name
}

type podWalker struct {
	file   *file
	object string
	found  []site
	seen   map[*yaml.Node]bool // visited values: a value with several aliases is found once
}

// containerLists are the fields that contain containers, in every kind with pods.
var containerLists = map[string]bool{"containers": true, "initContainers": true, "ephemeralContainers": true}

func (w *podWalker) walk(n *yaml.Node, path, note string) {
	if n == nil {
		return
	}
	t := target(n)
	if t == nil || t.Kind == yaml.ScalarNode || w.seen[t] {
		return
	}
	w.seen[t] = true
	if t.Anchor != "" {
		note = shared(t)
	}
	if t.Kind == yaml.SequenceNode {
		for i, v := range t.Content {
			if w.file.spent() {
				return
			}
			outer := w.object
			if name := w.file.objectName(target(v)); strings.Contains(name, "/") { // of a List
				w.object = name
			}
			w.walk(v, w.file.item(path, i, v), note)
			w.object = outer
		}
		return
	}
	for _, p := range pairs(t) {
		if !w.file.spend(1) {
			return
		}
		here := w.file.step(path, p.key.Value)
		if list := target(p.value); containerLists[p.key.Value] && list.Kind == yaml.SequenceNode {
			w.containers(list, here, note)
		}
		w.walk(p.value, here, note)
	}
}

func (w *podWalker) containers(list *yaml.Node, path, note string) {
	for i, c := range list.Content {
		if w.file.spent() {
			return
		}
		w.container(c, w.file.item(path, i, c), note)
	}
}

func (w *podWalker) container(c *yaml.Node, path, note string) {
	image := w.file.lookUp(c, "image")
	if !isScalar(image) || text(image) == "" || w.seen[target(image)] {
		return
	}
	w.seen[target(image)] = true
	w.file.spend(len(path)) // which is kept
	for _, by := range []*yaml.Node{target(c), target(image)} {
		if by.Anchor != "" {
			note = shared(by)
		}
	}
	w.found = append(w.found, &scalarSite{file: w.file, node: target(image), object: w.object, field: path + ".image", note: note})
}

// scalarSite is an image that is written as one text.
type scalarSite struct {
	file          *file
	node          *yaml.Node
	object, field string
	note          string
}

func (s *scalarSite) image() string { return text(s.node) }

func (s *scalarSite) matches(name string) bool { return sameRepo(split(s.image()).Repo, name) }

func (s *scalarSite) place() Place {
	image := s.image()
	return Place{File: s.file.path, Line: s.node.Line, Object: s.object, Field: s.field, Image: image, Old: image, Note: s.note}
}

func (s *scalarSite) set(ref Ref) ([]Place, error) {
	p := s.place()
	if strings.Contains(p.Image, "${") {
		return nil, problem(p.File, "line %d: the image %s is composed of variables: change source.variables of the deployment", p.Line, p.Image)
	}
	p.New = ref.over(split(p.Image)).String()
	p.Text = p.New
	return []Place{p}, s.file.replace(s.node, p.New)
}
