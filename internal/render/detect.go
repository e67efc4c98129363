package render

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/plain"
)

const chartFile = "Chart.yaml"

var kustomizations = plain.Kustomizations

// kindWords are the names of kinds in messages.
var kindWords = map[fleet.SourceKind]string{fleet.SourceKustomize: "the Kustomize build", fleet.SourceHelm: "the chart"}

// Detect returns the kind of the folder at folder: a chart if it contains Chart.yaml, a Kustomize build if it
// contains a kustomization file, otherwise plain manifests. With globs it is always plain manifests. A folder
// with both files is a user error. A missing folder counts as plain.
func Detect(ctx context.Context, tree filetree.Tree, folder string, globs []string) (fleet.SourceKind, error) {
	if len(globs) > 0 {
		return fleet.SourcePlain, nil
	}
	entries, err := tree.List(ctx, cleanPath(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return fleet.SourcePlain, nil
	}
	if err != nil {
		return fleet.SourceDetected, err
	}
	chart, kustomization := "", ""
	for _, e := range entries {
		if e.Mode != filetree.File && e.Mode != filetree.Symlink {
			continue
		}
		if e.Name == chartFile {
			chart = e.Name
		}
		if slices.Contains(kustomizations, e.Name) {
			kustomization = e.Name
		}
	}
	switch {
	case chart != "" && kustomization != "":
		return fleet.SourceDetected, &Error{Path: cleanPath(folder), Problem: "it contains both " + chart + " and " + kustomization +
			": set source.kind to helm or kustomize"}
	case chart != "":
		return fleet.SourceHelm, nil
	case kustomization != "":
		return fleet.SourceKustomize, nil
	default:
		return fleet.SourcePlain, nil
	}
}

// detectionReads returns the read set of Detect, as in treefs.
func detectionReads(folder string) []string {
	var out []string
	for _, name := range append([]string{chartFile}, kustomizations...) {
		out = append(out, "f "+path.Join(cleanPath(folder), name))
	}
	return out
}

// kind returns the kind of the request, or the detected one.
func (req Request) kind(ctx context.Context, tree filetree.Tree) (fleet.SourceKind, error) {
	kind := req.Kind
	if kind == fleet.SourceDetected {
		var err error
		if kind, err = Detect(ctx, tree, req.Path, req.Globs); err != nil {
			return kind, err
		}
	}
	if kind != fleet.SourceHelm && !req.Helm.IsZero() {
		return kind, &Error{Path: cleanPath(req.Path), Problem: "source.helm is set, but the folder is not a chart: it has no " + chartFile}
	}
	return kind, nil
}

func cleanPath(folder string) string { return path.Clean(strings.TrimLeft(folder, "/")) }
