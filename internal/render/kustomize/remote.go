package kustomize

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Fields by how Kustomize uses their texts.
var (
	// folderFields contain files or folders, and may contain repositories.
	folderFields = []string{"resources", "bases", "components", "generators", "transformers", "validators"}
	// fileFields contain files, and may contain URLs.
	fileFields = []string{"crds", "configurations", "patchesStrategicMerge", "path", "paths", "files", "envs", "env"}
	// valueFields contain arbitrary text.
	valueFields = []string{
		"commonLabels", "commonAnnotations", "labels", "annotations", "pairs", "metadata", "options", "literals", "images", "patch", "values", "generatorOptions",
	}
	// helmFields make Kustomize run the helm program.
	helmFields = []string{"helmCharts", "helmChartInflationGenerator"}
)

// checkKustomization refuses a kustomization that would fetch or run something, and notes deprecated fields.
func (t *tree) checkKustomization(name string, data []byte) error {
	var generic map[string]any
	if err := yaml.Unmarshal(data, &generic); err != nil {
		return nil //nolint:nilerr // Kustomize says what is wrong with it
	}
	for _, field := range helmFields {
		if generic[field] != nil {
			return &treefs.Error{Path: name, Problem: field + ": Kustomize would run the helm program, and renders run no programs: deploy the chart separately, or commit its rendered objects"}
		}
	}
	if generic["openapi"] != nil {
		t.setsOpenAPI = true
	}
	if err := checkFields(name, "", generic); err != nil {
		return err
	}
	var k types.Kustomization
	if k.Unmarshal(data) == nil {
		if warnings := k.CheckDeprecatedFields(); warnings != nil {
			for _, text := range *warnings {
				t.note(name + ": " + strings.TrimSpace(strings.TrimPrefix(text, "# Warning: ")))
			}
		}
	}
	return nil
}

func (t *tree) note(text string) {
	if !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

// checkPlugins refuses the configuration of a built-in plugin that would fetch something. Any file may be one.
func checkPlugins(name string, data []byte) error {
	if !bytes.Contains(data, []byte("builtin")) && !bytes.Contains(data, []byte{'\\'}) { // escapes may hide the word
		return nil
	}
	for part := range strings.SplitSeq("\n"+strings.ReplaceAll(string(data), "\r\n", "\n"), "\n---") {
		var generic map[string]any
		if yaml.Unmarshal([]byte(part), &generic) != nil {
			continue
		}
		if err := checkPlugin(name, generic, maxLists); err != nil {
			return err
		}
	}
	return nil
}

// maxLists limits the nesting of lists of objects. Kustomize unpacks one level.
const maxLists = 4

// checkPlugin checks one object, or a list of objects.
func checkPlugin(name string, object map[string]any, lists int) error {
	if items, ok := object["items"].([]any); ok && lists > 0 {
		for _, item := range items {
			if inner, ok := item.(map[string]any); ok {
				if err := checkPlugin(name, inner, lists-1); err != nil {
					return err
				}
			}
		}
	}
	if object["apiVersion"] != "builtin" {
		return nil
	}
	if object["kind"] == "HelmChartInflationGenerator" {
		return &treefs.Error{Path: name, Problem: "HelmChartInflationGenerator would run the helm program, and renders run no programs: deploy the chart separately, or commit its rendered objects"}
	}
	return checkFields(name, "", object)
}

// checkFields searches for URLs in the value of a field.
func checkFields(name, field string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			if slices.Contains(valueFields, key) {
				continue
			}
			if err := checkFields(name, key, item); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := checkFields(name, field, item); err != nil {
				return err
			}
		}
	case string:
		return checkText(name, field, v)
	}
	return nil
}

func checkText(name, field, text string) error {
	isFolder := slices.Contains(folderFields, field)
	switch {
	case isFolder && strings.Contains(text, "\n"):
		return checkPlugins(name, []byte(text))
	case isFolder && (isRepository(text) || isURL(text)):
	case slices.Contains(fileFields, field) && (isURL(text) || isURL(afterKey(text))):
	default:
		return nil
	}
	return &treefs.Error{Path: name, Problem: fmt.Sprintf("%s: %q is not in this repository, and renders fetch nothing: "+
		"keep a copy in the repository and use its path", field, text)}
}

// afterKey returns the file of "key=file".
func afterKey(text string) string {
	_, file, _ := strings.Cut(text, "=")
	return file
}

// isURL reports whether Kustomize would download a file.
func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// repository matches addresses that Kustomize treats as repositories: a scheme, a user, or GitHub. It is
// slightly wider than Kustomize's rule, which is not exported.
var repository = regexp.MustCompile(`(?i)^(git::)?((ssh|https?|file|git)://|[a-z][a-z0-9-]*@|github\.com[/:])`)

// isRepository reports whether Kustomize would clone a repository.
func isRepository(text string) bool { return !path.IsAbs(text) && repository.MatchString(text) }
