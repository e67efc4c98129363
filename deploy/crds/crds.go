// Package crds has the definitions of the custom resources of Kedge, generated from api/v1alpha1.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Manifest returns the definitions as YAML for kubectl apply.
func Manifest() (string, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("reading definition %q: %w", name, err)
		}
		out.Write(text)
	}
	return out.String(), nil
}
