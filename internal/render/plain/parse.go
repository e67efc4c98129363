package plain

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Parse reads the files and returns their objects. A user error is an [*Error] or an error of package manifest.
func Parse(ctx context.Context, tree filetree.Tree, files []File, limits Limits) ([]manifest.Object, error) {
	limits = limits.OrDefault()
	var objects []manifest.Object
	var total int64
	values := 0
	watch := startWatch(limits)
	for _, f := range files {
		if err := watch.check(ctx, f.Path); err != nil {
			return nil, err
		}
		var data []byte
		var err error
		watch.waitFor(func() { data, err = tree.Read(ctx, f.Entry, limits.FileBytes) })
		if errors.Is(err, filetree.ErrTooBig) {
			return nil, problem(f.Path, "larger than the %d bytes that are allowed for one file", limits.FileBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", f.Path, err)
		}
		if filetree.IsLFSPointer(data) {
			return nil, problem(f.Path, filetree.LFSProblem)
		}
		if total += int64(len(data)); total > limits.TotalBytes {
			return nil, problem(f.Path, "with it the files are larger than the %d bytes that are allowed together", limits.TotalBytes)
		}
		parsed, err := manifest.Parse(f.Path, data)
		if err != nil {
			return nil, explainKustomization(f.Path, err)
		}
		for _, o := range parsed {
			values += o.Values()
		}
		if values > manifest.MaxValues {
			return nil, problem(f.Path, "with it there are more than the %d values that are allowed: deploy the files by several deployments", manifest.MaxValues)
		}
		objects = append(objects, parsed...)
		if len(objects) > limits.Objects {
			return nil, problem(f.Path, "with it there are more than the %d objects that are allowed", limits.Objects)
		}
	}
	return objects, nil
}

// explainKustomization explains how to handle a kustomization file among plain manifests, which usually is not
// an object.
func explainKustomization(file string, err error) error {
	if !slices.Contains(Kustomizations, path.Base(file)) {
		return err
	}
	return problem(file, "a kustomization file below a folder of plain manifests, which is not built (%v): "+
		"deploy the folder %q with a separate deployment, or exclude it with globs", err, path.Dir(file))
}
