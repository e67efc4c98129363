package imageset

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// valuesSite is one image in the values of a chart, merged from all layers.
type valuesSite struct {
	where  string
	layers []*valuesAt // layers with a definition; later ones take precedence
}

// last returns the layer with the highest precedence.
func (v *valuesSite) last() *valuesAt { return v.layers[len(v.layers)-1] }

// field returns the value of a field and its layer, or nil. A layer that writes the image as one text hides the
// layers below it.
func (v *valuesSite) field(meaning string) (*yaml.Node, *valuesAt) {
	for i := len(v.layers) - 1; i >= 0; i-- {
		at := v.layers[i]
		if at.whole != nil {
			return nil, nil
		}
		if n := at.fields[meaning]; n != nil {
			return n, at
		}
	}
	return nil, nil
}

func (v *valuesSite) value(meaning string) string {
	n, _ := v.field(meaning)
	return text(n)
}

func (v *valuesSite) now() Ref {
	if whole := v.last().whole; whole != nil {
		return split(text(whole))
	}
	repo := v.value("repository")
	if registry := v.value("registry"); registry != "" && repo != "" {
		repo = registry + "/" + repo
	}
	return Ref{Repo: repo, Tag: v.value("tag"), Digest: v.value("digest")}
}

func (v *valuesSite) repo() string { return v.now().Repo }

func (v *valuesSite) image() string { return v.now().String() }

func (v *valuesSite) matches(name string) bool {
	return sameRepo(v.repo(), name) || sameRepo(v.value("repository"), name)
}

func (v *valuesSite) place() Place {
	at, node, meaning := v.last(), v.last().whole, "tag"
	if node == nil {
		if n, by := v.field("tag"); n != nil {
			node, at = n, by
		} else {
			node, at = v.field("repository")
			meaning = "repository"
		}
	}
	p := v.placeAt(at, meaning, node)
	if at.layer.inline {
		p.Fixed = "set by the inline values of the deployment, not in Git"
	}
	return p
}

func (v *valuesSite) placeAt(at *valuesAt, meaning string, node *yaml.Node) Place {
	p := Place{File: at.layer.file.path, Field: at.fieldPath(v.where, meaning), Image: v.image(), Old: text(node), Note: at.note}
	if node != nil && !at.layer.inline {
		p.Line = target(node).Line
	}
	return p
}

func (v *valuesSite) set(ref Ref) ([]Place, error) {
	if ref.Repo == v.value("repository") { // the registry is implicit
		ref.Repo = ""
	}
	want := ref.over(v.now())
	if at := v.last(); at.whole != nil {
		p := v.placeAt(at, "", at.whole)
		p.New, p.Text = want.String(), want.String()
		if at.layer.inline {
			return nil, v.fixed(p.Field)
		}
		return []Place{p}, at.layer.file.replace(at.whole, p.New)
	}
	if want.Tag == "" { // charts with a digest field write the tag before it, and some need one
		want.Tag = v.value("tag")
	}
	var places []Place
	image := v.image() // before anything of it is changed
	for _, f := range v.wanted(want) {
		asked := (f.key == "tag" && ref.Tag != "") || (f.key == "digest" && ref.Digest != "")
		if f.value == v.value(f.key) && !asked {
			continue
		}
		p, err := v.put(f.key, f.value)
		if err != nil {
			return nil, err
		}
		p.Image, p.New = image, want.String()
		places = append(places, p)
	}
	return places, nil
}

// wanted returns the fields that form an image.
func (v *valuesSite) wanted(want Ref) []field {
	var out []field
	repo := want.Repo
	if registry, _ := v.field("registry"); registry != nil && text(registry) != "" && repo != v.now().Repo {
		host, rest, found := strings.Cut(repo, "/")
		if !found || !isHost(host) {
			host, rest, _ = strings.Cut(normal(repo), "/")
		}
		out, repo = append(out, field{"registry", host}), rest
	} else if repo == v.now().Repo {
		repo = v.value("repository")
	}
	return append(out, field{"repository", repo}, field{"digest", want.Digest}, field{"tag", want.Tag})
}

// put sets a field in the highest layer in Git that defines the image.
func (v *valuesSite) put(meaning, value string) (Place, error) {
	node, by := v.field(meaning)
	if by != nil && by.layer.inline {
		return Place{}, v.fixed(by.fieldPath(v.where, meaning))
	}
	var at *valuesAt
	for _, l := range v.layers {
		if !l.layer.inline {
			at = l
		}
	}
	switch {
	case at == nil:
		return Place{}, v.fixed(v.where)
	case meaning == "digest" && node == nil:
		return Place{}, problem(at.layer.file.path, "the values of image %s at %q have no digest: give a tag, or add the field digest if the chart knows it", v.image(), v.where)
	}
	key := at.keys[meaning]
	if key == "" && by != nil {
		key = by.keys[meaning]
	}
	if key == "" {
		key = meaning
	}
	at.keys[meaning] = key
	p := v.placeAt(at, meaning, at.fields[meaning])
	p.Text = value
	if p.Line == 0 {
		p.Line = at.in.Line
	}
	if at.fields[meaning] != nil {
		return p, at.layer.file.replace(target(at.fields[meaning]), value)
	}
	return p, at.layer.file.put(at.in, key, value)
}

func (v *valuesSite) fixed(field string) error {
	return problem("", "the image %s is set by the inline values of the deployment (%s), which are not in Git: change them with kedge deploy set", v.image(), field)
}
