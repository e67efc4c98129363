package control

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/helmset"
)

const (
	maxValues      = 64 << 10 // bytes: larger values belong into a file of the repository
	maxValuesFiles = 50
	maxReleaseName = 53 // Helm's limit: names of objects start with it
)

// checkKind refuses settings of another kind of source.
func checkKind(src fleet.Source) error {
	switch src.Kind {
	case fleet.SourceDetected:
		if len(src.Globs) > 0 && !src.Helm.IsZero() {
			return fleet.Invalid("source.globs", "source.helm is set: globs are for plain manifests")
		}
	case fleet.SourcePlain:
		if !src.Helm.IsZero() {
			return fleet.Invalid("source.helm", "source.kind is plain: only a chart has these settings")
		}
	case fleet.SourceKustomize:
		if !src.Helm.IsZero() {
			return fleet.Invalid("source.helm", "source.kind is kustomize: only a chart has these settings")
		}
		fallthrough
	case fleet.SourceHelm:
		if len(src.Globs) > 0 {
			return fleet.Invalid("source.globs", "source.kind is %s: globs are for plain manifests", src.Kind)
		}
	default:
		return fleet.Invalid("source.kind", "%q is not one of plain, kustomize, and helm; omit it to detect the kind", src.Kind)
	}
	return nil
}

// checkHelm refuses settings that no chart can be rendered with, and converts values to their stored form: JSON
// with sorted keys.
func checkHelm(h *fleet.Helm) error {
	if name := h.ReleaseName; name != "" {
		// References to agents are not expanded yet; Helm checks the result.
		plain := agentReference.ReplaceAllString(name, "x")
		if err := fleet.CheckName("source.helm.releaseName", plain); err != nil {
			return err
		}
		if len(plain) > maxReleaseName {
			return fleet.Invalid("source.helm.releaseName", "%q has more than %d characters", name, maxReleaseName)
		}
		if err := checkReferences("source.helm.releaseName", name); err != nil {
			return err
		}
	}
	if len(h.ValuesFiles) > maxValuesFiles {
		return fleet.Invalid("source.helm.valuesFiles", "at most %d files can be given", maxValuesFiles)
	}
	for _, file := range h.ValuesFiles {
		if err := checkValuesFile(file); err != nil {
			return err
		}
	}
	values, err := canonicalValues(h.Values)
	h.Values = values
	if err != nil {
		return err
	}
	return checkSets(h.Set, maxValues-len(h.Values))
}

// checkSets refuses expressions that Helm cannot parse. The render shows whether they fit the values of the
// chart.
func checkSets(sets []fleet.HelmSet, most int) error {
	const field = "source.helm.set"
	for i, set := range sets {
		if most -= len(set.Expression); most < 0 {
			return fleet.Invalid(field, "values and set have more than %d bytes together: put values into a file of the repository, and add it to valuesFiles", maxValues)
		}
		if err := checkReferencesOf(fmt.Sprintf("%s[%d]", field, i), set.Expression); err != nil {
			return err
		}
	}
	if err := helmset.Check(sets); err != nil {
		return fleet.Invalid(field, "%v", err)
	}
	return nil
}

// checkValuesFile does not check whether a relative path leaves the repository: that depends on the path of the
// source, and the render checks it. Absolute paths are checked here.
func checkValuesFile(file string) error {
	const field = "source.helm.valuesFiles"
	switch {
	case file == "" || len(file) > 1024 || strings.ContainsRune(file, 0):
		return fleet.Invalid(field, "a path has between 1 and 1024 characters")
	case strings.Contains(file, "://"):
		return fleet.Invalid(field, "%q is not a file of the repository: other sources are not supported", file)
	case strings.HasPrefix(file, "/") && strings.HasPrefix(path.Clean(file[1:])+"/", "../"):
		return fleet.Invalid(field, "%q leaves the repository", file)
	}
	return checkReferences(field, file)
}

// canonicalValues parses YAML or JSON. Aliases are not allowed, so that small input stays small.
func canonicalValues(text string) (string, error) {
	const field = "source.helm.values"
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	tooLarge := fleet.Invalid(field, "has more than %d bytes: put the values into a file of the repository, and add it to valuesFiles", maxValues)
	if len(text) > maxValues {
		return "", tooLarge
	}
	var node yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(text), &node); err != nil {
		return "", fleet.Invalid(field, "not valid YAML: %v", err)
	}
	if hasAlias(&node) {
		return "", fleet.Invalid(field, "aliases are not allowed here: write the values out")
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		return "", fleet.Invalid(field, "not a mapping of names to values: %v", err)
	}
	if len(values) == 0 {
		return "", nil
	}
	out, err := json.Marshal(values)
	if err != nil {
		return "", fleet.Invalid(field, "%v", err)
	}
	if len(out) > maxValues {
		return "", tooLarge
	}
	return string(out), checkReferencesOf(field, string(out))
}

// checkReferencesOf is checkReferences for a text that is too long for a message.
func checkReferencesOf(field, text string) error {
	if err := checkReferences(field, text); err != nil {
		return fleet.Invalid(field, "only {agent.name} and {agent.labels.KEY} are supported")
	}
	return nil
}

func hasAlias(n *yamlv3.Node) bool {
	if n.Kind == yamlv3.AliasNode {
		return true
	}
	for _, child := range n.Content {
		if hasAlias(child) {
			return true
		}
	}
	return false
}
