package helm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// objects turns what the templates gave into objects, with those of the folder crds and with hooks in
// waves of their own.
func (b *builder) objects(c *chart.Chart, rendered map[string]string) ([]manifest.Object, error) {
	for name := range rendered {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(rendered, name)
		}
	}
	hooks, plain, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, b.yamlError(err)
	}
	var objects []manifest.Object
	if !b.req.Helm.SkipCRDs {
		for _, crd := range c.CRDObjects() {
			if objects, err = b.appendParsed(objects, crd.Filename, string(crd.File.Data)); err != nil {
				return nil, err
			}
		}
	}
	for _, m := range plain {
		if objects, err = b.appendParsed(objects, m.Name, m.Content); err != nil {
			return nil, err
		}
	}
	return b.withHooks(objects, rendered, hooks)
}

// withHooks adds the hooks that have a place in a deployment.
func (b *builder) withHooks(objects []manifest.Object, rendered map[string]string, hooks []*release.Hook) ([]manifest.Object, error) {
	plan := hookPlan{objects: objects}
	for _, h := range hooks {
		parsed, err := b.appendParsed(nil, h.Path, h.Manifest)
		if err != nil {
			return nil, err
		}
		plan.add(h, parsed)
	}
	b.noteUnknownHooks(rendered, hooks)
	return plan.arrange(b), nil
}

// appendParsed adds the objects of one document that a template gave. Helm puts a line break after each, which counts
// where a block scalar ends the document. Helm takes a key that is there twice, and so do charts that people use: the
// last one wins.
func (b *builder) appendParsed(objects []manifest.Object, name, text string) ([]manifest.Object, error) {
	text += "\n"
	source := b.sourceOf(name)
	parsed, err := manifest.Parse(source, []byte(text))
	var user *manifest.Error
	if errors.As(err, &user) && strings.Contains(user.Problem, "already set in map") {
		if parsed, err = parseTwice(source, text); err == nil {
			b.note("%s gives a key twice: the last one wins, as in Helm (%s)", source, user.Problem)
		}
	}
	if errors.As(err, &user) {
		// Lines are those of the output, which nobody has in front of them.
		return nil, &treefs.Error{Path: source, Problem: "in what the template gives: " + user.Problem}
	}
	if err != nil {
		return nil, err
	}
	return append(objects, parsed...), nil
}

// parseTwice decodes as Helm does, and then as we do.
func parseTwice(source, text string) ([]manifest.Object, error) {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, &manifest.Error{Source: source, Problem: err.Error()}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding %q: %w", source, err)
	}
	return manifest.Parse(source, data)
}

// yamlError is the adapter for Helm's errors of output that is not YAML.
func (b *builder) yamlError(err error) error {
	text, ok := strings.CutPrefix(err.Error(), "YAML parse error on ")
	name, rest, found := strings.Cut(text, ": ")
	if !ok || !found {
		return b.problem("templates", "%s", oneLine(err.Error()))
	}
	return &treefs.Error{Path: b.sourceOf(name), Problem: "what the template gives is not valid YAML: " +
		oneLine(strings.TrimPrefix(rest, "error converting YAML to JSON: "))}
}
