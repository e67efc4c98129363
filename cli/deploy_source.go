package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// sourceFlags say how the files of a source become objects.
type sourceFlags struct {
	kind, release, values string
	valuesFiles, sets     []string
	skipCRDs              bool
}

func (s *sourceFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.kind, "kind", "", "plain, kustomize or helm (default: what the folder holds)")
	f.StringVar(&s.release, "helm-release", "", "name of a chart's release (default: the name of the deployment)")
	f.StringArrayVar(&s.valuesFiles, "values-file", nil, "values of a chart in the repository, relative to --path or from its root when it begins with /; may be repeated, later ones win; empty removes them")
	f.StringVar(&s.values, "values", "", "file on this machine with values of a chart, which win over those in the repository")
	f.StringArrayVar(&s.sets, "set", nil, "one value of a chart, as a.b=value with value as in YAML; may be repeated")
	f.BoolVar(&s.skipCRDs, "skip-crds", false, "leave out the folder crds of a chart")
}

// namesHelm reports whether settings of a chart are named.
func (s *sourceFlags) namesHelm(f *pflag.FlagSet) bool {
	for _, name := range []string{"helm-release", "values-file", "values", "set", "skip-crds"} {
		if f.Changed(name) {
			return true
		}
	}
	return false
}

// helm is what was named, over what there is now; nil when nothing was named.
func (s *sourceFlags) helm(f *pflag.FlagSet, now *apiv1.Helm) (*apiv1.Helm, error) {
	if !s.namesHelm(f) {
		return nil, nil
	}
	var out apiv1.Helm
	if now != nil {
		out = *now
	}
	if f.Changed("helm-release") {
		out.ReleaseName = s.release
	}
	if f.Changed("values-file") {
		out.ValuesFiles = slices.DeleteFunc(slices.Clone(s.valuesFiles), func(name string) bool { return name == "" })
	}
	if f.Changed("skip-crds") {
		out.SkipCRDs = s.skipCRDs
	}
	if f.Changed("values") {
		values, err := readValues(s.values)
		if err != nil {
			return nil, err
		}
		out.Values = values
	}
	for _, set := range s.sets {
		values, err := setValue(out.Values, set)
		if err != nil {
			return nil, err
		}
		out.Values = values
	}
	return &out, nil
}

// change puts what was named into a change of a source whose settings of a chart are now those.
func (s *sourceFlags) change(f *pflag.FlagSet, to *apiv1.UpdateSource, now *apiv1.Helm) error {
	if f.Changed("kind") {
		to.Kind = &s.kind
	}
	var err error
	to.Helm, err = s.helm(f, now)
	return err
}

// readValues reads a file of values; "" means none, which removes them.
func readValues(name string) (map[string]any, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the file of --values: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return nil, fmt.Errorf("reading the file of --values %q: %w", name, err)
	}
	return values, nil
}

// setValue returns values with one of them changed; the maps on the way are copied, not written to.
func setValue(values map[string]any, set string) (map[string]any, error) {
	path, text, ok := strings.Cut(set, "=")
	if !ok || path == "" {
		return nil, fmt.Errorf("--set %q: write it as a.b=value", set)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("--set %q: the value is not YAML: %w", set, err)
	}
	if text == "" {
		value = ""
	}
	return put(values, strings.Split(path, "."), value, set)
}

func put(in map[string]any, path []string, value any, set string) (map[string]any, error) {
	out := make(map[string]any, len(in)+1)
	maps.Copy(out, in)
	name := path[0]
	if name == "" {
		return nil, fmt.Errorf("--set %q: a name is empty", set)
	}
	if len(path) == 1 {
		out[name] = value
		return out, nil
	}
	below, isMap := out[name].(map[string]any)
	if !isMap && out[name] != nil {
		return nil, fmt.Errorf("--set %q: %s is no mapping", set, name)
	}
	inner, err := put(below, path[1:], value, set)
	out[name] = inner
	return out, err
}
