package imageset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// layer is one source of values. Later layers take precedence.
type layer struct {
	file   *file
	inline bool // set in the deployment, and so not in Git
}

// inlineName replaces the file name for inline values.
const inlineName = "(inline values of the deployment)"

// helm finds the images in the values of a chart.
func (s *search) helm(ctx context.Context) ([]site, error) {
	layers, err := s.layers(ctx)
	if err != nil {
		return nil, err
	}
	var order []string
	merged := map[string]*valuesSite{}
	for _, l := range layers {
		w := valuesWalker{layer: l, seen: map[*yaml.Node]bool{}}
		for _, doc := range l.file.docs {
			w.walk(root(doc), "", "", "")
		}
		if err := l.file.bounded(); err != nil {
			return nil, err
		}
		for _, where := range w.order {
			if merged[where] == nil {
				merged[where] = &valuesSite{where: where}
				order = append(order, where)
			}
			merged[where].layers = append(merged[where].layers, w.found[where])
		}
	}
	var sites []site
	for _, where := range order {
		if merged[where].repo() != "" {
			sites = append(sites, merged[where])
		}
	}
	return sites, nil
}

// layers opens the values of the chart, the values files, and the inline values.
func (s *search) layers(ctx context.Context) ([]*layer, error) {
	var out []*layer
	f, err := s.open(ctx, path.Join(s.req.Path, "values.yaml"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		out = append(out, &layer{file: f})
	}
	for _, name := range s.req.Helm.ValuesFiles {
		where := path.Join(s.req.Path, name)
		if strings.HasPrefix(name, "/") {
			where = path.Clean(name[1:])
		}
		if where == ".." || strings.HasPrefix(where, "../") {
			return nil, problem("", "the values file %q is outside the repository", name)
		}
		f, err := s.open(ctx, where)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, problem(where, "there is no such values file")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, &layer{file: f})
	}
	if s.req.Helm.Values != "" {
		f, err := s.parse(inlineName, []byte(s.req.Helm.Values))
		if err != nil {
			return nil, err
		}
		out = append(out, &layer{file: f, inline: true})
	}
	return out, nil
}

// valuesAt is the definition of an image in one layer.
type valuesAt struct {
	layer  *layer
	whole  *yaml.Node            // image: repo:tag; nil if it is a mapping
	in     *yaml.Node            // the mapping with the fields
	fields map[string]*yaml.Node // repository, registry, tag, digest; by meaning
	keys   map[string]string     // names of the fields in this mapping
	note   string
}

// valuesWalker finds values that look like an image in one layer, by path.
type valuesWalker struct {
	layer *layer
	found map[string]*valuesAt
	order []string
	seen  map[*yaml.Node]bool
}

func (w *valuesWalker) walk(n *yaml.Node, where, key, note string) {
	t := target(n)
	if t == nil || t.Kind == yaml.ScalarNode || w.seen[t] {
		return
	}
	w.seen[t] = true
	if t.Anchor != "" {
		note = shared(t)
	}
	f := w.layer.file
	if t.Kind == yaml.SequenceNode {
		for i, v := range t.Content {
			if !f.spend(1) {
				return
			}
			w.walk(v, f.item(where, i, v), "", note)
		}
		return
	}
	if at := f.imageMapping(t, key); at != nil {
		at.layer, at.note = w.layer, note
		w.add(where, at)
	}
	for _, p := range pairs(t) {
		if !f.spend(1) {
			return
		}
		here := f.step(where, p.key.Value)
		if isImageKey(p.key.Value) && isScalar(p.value) && f.spend(len(text(p.value))) && looksLikeImage(text(p.value)) {
			w.add(here, w.written(t, p, note))
		}
		w.walk(p.value, here, p.key.Value, note)
	}
}

func (w *valuesWalker) add(where string, at *valuesAt) {
	if w.found == nil {
		w.found = map[string]*valuesAt{}
	}
	if w.found[where] == nil {
		w.layer.file.spend(len(where)) // which is kept
		w.order = append(w.order, where)
	}
	w.found[where] = at
}

// written returns an image that is one text. Its tag may be in a key next to it.
func (w *valuesWalker) written(m *yaml.Node, p pair, note string) *valuesAt {
	if t := target(p.value); t.Anchor != "" {
		note = shared(t)
	}
	at := &valuesAt{layer: w.layer, whole: target(p.value), in: m, note: note, fields: map[string]*yaml.Node{}, keys: map[string]string{}}
	image := split(text(p.value))
	if image.Tag != "" || image.Digest != "" {
		return at
	}
	for _, key := range []string{p.key.Value + "Tag", p.key.Value + "_tag", "tag"} {
		if v := w.layer.file.find(m, key); isScalar(v) && (key != "tag" || p.key.Value == "image") {
			at.fields["repository"], at.keys["repository"] = p.value, p.key.Value
			at.fields["tag"], at.keys["tag"] = v, key
			at.whole = nil
			break
		}
	}
	return at
}

// imageMapping returns a mapping that defines the parts of an image, or nil.
func (f *file) imageMapping(m *yaml.Node, key string) *valuesAt {
	at := &valuesAt{in: m, fields: map[string]*yaml.Node{}, keys: map[string]string{}}
	for meaning, names := range map[string][]string{
		"repository": {"repository", "repo"}, "registry": {"registry"}, "tag": {"tag"}, "digest": {"digest"},
	} {
		for _, name := range names {
			if v := f.find(m, name); isScalar(v) && at.fields[meaning] == nil {
				at.fields[meaning], at.keys[meaning] = v, name
			}
		}
	}
	if name := f.find(m, "name"); at.fields["repository"] == nil && isImageKey(key) && isScalar(name) && at.fields["tag"] != nil {
		at.fields["repository"], at.keys["repository"] = name, "name"
	}
	switch {
	case len(at.fields) == 0, !isImageKey(key) && (at.fields["repository"] == nil || at.fields["tag"] == nil):
		return nil
	}
	return at
}

func isImageKey(key string) bool { return strings.HasSuffix(strings.ToLower(key), "image") }

func looksLikeImage(value string) bool {
	return value != "" && !strings.ContainsAny(value, " \t{}$") && repoForm.MatchString(split(value).Repo)
}

func (at *valuesAt) fieldPath(where, meaning string) string {
	if at.whole != nil {
		return where
	}
	if at.keys["repository"] != "" && isImageKey(at.keys["repository"]) { // beside each other, not below
		if i := strings.LastIndexByte(where, '.'); i >= 0 {
			return where[:i+1] + at.keys[meaning]
		}
		return at.keys[meaning]
	}
	key := at.keys[meaning]
	if key == "" {
		key = meaning
	}
	return fmt.Sprintf("%s.%s", where, key)
}
