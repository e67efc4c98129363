package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/filetree/disktree"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/objectdiff"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
)

// diffFolders renders two folders on this machine and compares them. A chart is given one name for both,
// which their folders need not share.
func (a *app) diffFolders(ctx context.Context, older, newer string, r renderFlags) (apiv1.Diff, error) {
	pool, err := child.NewPool(child.Config{Program: a.RenderProgram, Processes: 1, Idle: -1})
	if err != nil {
		return apiv1.Diff{}, &exitError{exitUsage, err.Error(), ""}
	}
	defer pool.Close()
	release := cmp.Or(r.request.Helm.ReleaseName, "release")
	r.request.Helm.ReleaseName = ""
	out := apiv1.Diff{From: apiv1.DiffSide{Name: older}, To: apiv1.DiffSide{Name: newer}}
	var variant apiv1.VariantDiff
	var sides [2][]manifest.Object
	for i, dir := range []string{older, newer} {
		result, err := renderFolder(ctx, dir, release, r, pool)
		if err != nil {
			return apiv1.Diff{}, fmt.Errorf("rendering %q: %w", dir, err)
		}
		sides[i] = result.Set.Objects()
		if result.Volatile {
			variant.Notes = []string{"the chart uses time or randomness: some differences may appear in every render"}
		}
	}
	objects, sum := objectdiff.Compare(sides[0], sides[1], r.request.Namespace)
	variant.Added, variant.Removed, variant.Changed, variant.Unchanged = sum.Added, sum.Removed, sum.Changed, sum.Unchanged
	variant.Objects = objectDiffs(objects)
	out.Variants = []apiv1.VariantDiff{variant}
	return out, nil
}

func renderFolder(ctx context.Context, dir, release string, r renderFlags, builder render.Builder) (*render.Result, error) {
	root, err := r.locate(dir)
	if err != nil {
		return nil, err
	}
	r.request.Release = release
	tree, err := disktree.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close() //nolint:errcheck // nothing was written
	return render.Render(ctx, tree, r.request, builder)
}

func objectDiffs(objects []objectdiff.Object) []apiv1.ObjectDiff {
	out := make([]apiv1.ObjectDiff, len(objects))
	for i, o := range objects {
		out[i] = apiv1.ObjectDiff{Object: o.Ref.String(), Change: string(o.Kind), Fields: make([]apiv1.FieldDiff, len(o.Fields)), More: o.More}
		for j, f := range o.Fields {
			out[i].Fields[j] = apiv1.FieldDiff{Path: f.Path, Change: string(f.Kind), Old: f.Old, New: f.New}
		}
	}
	return out
}
