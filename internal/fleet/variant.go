package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// reference matches {agent.name} and {agent.labels.KEY}.
var reference = regexp.MustCompile(`\{agent\.(?:name|labels\.([^{}]+))\}`)

// Templated reports whether the source refers to agents, so that each may get its own variant.
func (s Source) Templated() bool {
	speaks := reference.MatchString
	for _, value := range s.Variables {
		if speaks(value) {
			return true
		}
	}
	return speaks(s.Path) || speaks(s.Helm.ReleaseName) || speaks(s.Helm.Values) || slices.ContainsFunc(s.Helm.ValuesFiles, speaks) ||
		slices.ContainsFunc(s.Helm.Set, func(set HelmSet) bool { return speaks(set.Expression) })
}

// For returns the source for one agent, and the name of its variant. Agents with equal names share all
// settings. The name is "" if the source does not refer to agents. A label that the agent does not have is an
// InvalidError.
func (s Source) For(agent Agent) (Source, string, error) {
	if !s.Templated() {
		return s, "", nil
	}
	var err error
	if s.Path, err = expand("source.path", s.Path, agent); err != nil {
		return Source{}, "", err
	}
	variables := make(map[string]string, len(s.Variables))
	for name, value := range s.Variables {
		if variables[name], err = expand("source.variables."+name, value, agent); err != nil {
			return Source{}, "", err
		}
	}
	s.Variables = variables
	if s.Helm, err = s.Helm.forAgent(agent); err != nil {
		return Source{}, "", err
	}
	return s, s.variantName(), nil
}

// forAgent expands references to agents. Names and labels of agents contain no character with a meaning in JSON
// or in the expressions of Set, so values need no escaping.
func (h Helm) forAgent(agent Agent) (Helm, error) {
	var err error
	if h.ReleaseName, err = expand("source.helm.releaseName", h.ReleaseName, agent); err != nil {
		return Helm{}, err
	}
	if h.Values, err = expand("source.helm.values", h.Values, agent); err != nil {
		return Helm{}, err
	}
	files := slices.Clone(h.ValuesFiles)
	for i := range files {
		if files[i], err = expand("source.helm.valuesFiles", files[i], agent); err != nil {
			return Helm{}, err
		}
	}
	h.ValuesFiles = files
	sets := slices.Clone(h.Set)
	for i := range sets {
		if sets[i].Expression, err = expand("source.helm.set", sets[i].Expression, agent); err != nil {
			return Helm{}, err
		}
	}
	h.Set = sets
	return h, nil
}

// Equal reports whether two settings are the same.
func (h Helm) Equal(o Helm) bool {
	return h.ReleaseName == o.ReleaseName && h.Values == o.Values && h.SkipCRDs == o.SkipCRDs && slices.Equal(h.ValuesFiles, o.ValuesFiles) &&
		slices.Equal(h.Set, o.Set)
}

// variantName returns a hash, so that its length is limited.
func (s Source) variantName() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", s.Path)
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		fmt.Fprintf(h, "%q=%q\n", name, s.Variables[name])
	}
	if !s.Helm.IsZero() {
		fmt.Fprintf(h, "%q %q %q\n", s.Helm.ReleaseName, s.Helm.ValuesFiles, s.Helm.Values)
		for _, set := range s.Helm.Set {
			fmt.Fprintf(h, "set %q %q\n", set.Type, set.Expression)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// Chart reports whether any variant of the deployment is a chart, by its settings or by the newest commit.
func (d Deployment) Chart() bool {
	return d.Source.Kind == SourceHelm || d.Source.Kind == SourceDetected && d.Detected == SourceHelm
}

// Varies reports whether agents may get different variants. Then the deployment itself has no digest.
func (d Deployment) Varies() bool { return d.Source.Templated() || d.Chart() }

// unknownCapabilities represents an agent that has not reported capabilities: its chart is rendered with the
// defaults of Helm.
const unknownCapabilities = "default"

// For is Source.For, with the capabilities of the cluster in the variant name of a chart: NAME@HASH, or @HASH
// if the source does not refer to agents.
func (d Deployment) For(agent Agent) (Source, string, error) {
	source, name, err := d.Source.For(agent)
	if err != nil || !d.Chart() {
		return source, name, err
	}
	return source, name + "@" + cmp.Or(agent.Capabilities, unknownCapabilities), nil
}

// NoVariant is the variant name of a target without a variant, see Target.VariantError. No variant has this
// name.
const NoVariant = "!"

// OfChart reports whether a variant name belongs to a chart.
func OfChart(variant string) bool { return strings.Contains(variant, "@") }

// SameButCapabilities reports whether two variants differ at most in the capabilities of the clusters.
func SameButCapabilities(a, b string) bool {
	nameA, _, okA := strings.Cut(a, "@")
	nameB, _, okB := strings.Cut(b, "@")
	return okA && okB && OfChart(a) && OfChart(b) && nameA == nameB
}

func expand(field, text string, agent Agent) (string, error) {
	var missing string
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		key, isLabel := strings.CutPrefix(strings.Trim(ref, "{}"), "agent.labels.")
		if !isLabel {
			return agent.Name
		}
		value, ok := agent.Labels[key]
		if !ok && missing == "" {
			missing = key
		}
		return value
	})
	if missing != "" {
		return "", Invalid(field, "agent %q has no label %q, which %s needs", agent.Name, missing, quoted(text))
	}
	return out, nil
}

// quoted shortens the text, which may be all values of a chart.
func quoted(text string) string {
	if len(text) > 200 {
		return "it"
	}
	return fmt.Sprintf("%q", text)
}
