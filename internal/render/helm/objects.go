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

// objects parses the output of the templates, adds the folder crds, and assigns hooks to waves.
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

// withHooks adds the hooks that belong to a deployment.
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

// appendParsed adds the objects of one document of a template. Helm adds a line break after each, which matters
// if a block scalar ends the document. Like Helm, it accepts duplicate keys, which exist in real charts: the
// last one takes precedence.
func (b *builder) appendParsed(objects []manifest.Object, name, text string) ([]manifest.Object, error) {
	text += "\n"
	source := b.sourceOf(name)
	parsed, err := manifest.Parse(source, []byte(text))
	var user *manifest.Error
	if errors.As(err, &user) && strings.Contains(user.Problem, "already set in map") {
		if parsed, err = parseTwice(source, text); err == nil {
			b.note("%s has a duplicate key: the last one is used, as in Helm (%s)", source, user.Problem)
		}
	}
	if errors.As(err, &user) {
		// Line numbers refer to the output, which the user does not see.
		return nil, &treefs.Error{Path: source, Problem: "in the output of the template: " + user.Problem}
	}
	if err != nil {
		return nil, err
	}
	return append(objects, parsed...), nil
}

// parseTwice decodes as Helm does, and then as package manifest does.
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

// yamlError adapts Helm's errors about invalid YAML.
func (b *builder) yamlError(err error) error {
	text, ok := strings.CutPrefix(err.Error(), "YAML parse error on ")
	name, rest, found := strings.Cut(text, ": ")
	if !ok || !found {
		return b.problem("templates", "%s", oneLine(err.Error()))
	}
	return &treefs.Error{Path: b.sourceOf(name), Problem: "the output of the template is not valid YAML: " +
		oneLine(strings.TrimPrefix(rest, "error converting YAML to JSON: "))}
}
