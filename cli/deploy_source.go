package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// sourceFlags say how the files of a source become objects.
type sourceFlags struct {
	kind, release, values string
	valuesFiles           []string
	set                   setFlags
	skipCRDs              bool
}

func (s *sourceFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.kind, "kind", "", "plain, kustomize or helm (default: what the folder holds)")
	f.StringVar(&s.release, "helm-release", "", "name of a chart's release (default: the name of the deployment)")
	f.StringArrayVar(&s.valuesFiles, "values-file", nil, "values of a chart in the repository, relative to --path or from its root when it begins with /; may be repeated, later ones win; empty removes them")
	f.StringVar(&s.values, "values", "", "file on this machine with values of a chart, which win over those in the repository")
	s.set.add(f)
	f.BoolVar(&s.skipCRDs, "skip-crds", false, "leave out the folder crds of a chart")
}

// namesHelm reports whether settings of a chart are named.
func (s *sourceFlags) namesHelm(f *pflag.FlagSet) bool {
	for _, name := range slices.Concat([]string{"helm-release", "values-file", "values", "skip-crds"}, setFlagNames) {
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
		out.Values, out.Set = values, nil
	}
	var err error
	out.Set, err = s.set.over(f, out.Set)
	return &out, err
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
