package render

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// builtVersion must change when equal input gives another result than before.
const builtVersion = "built/2"

// job returns the job for a builder.
func (req Request) job(tree filetree.Tree, kind fleet.SourceKind) Job {
	job := Job{Owner: req.Owner, Tree: tree, Kind: kind, Path: cleanPath(req.Path), Limits: req.Limits.OrDefault()}
	if kind == fleet.SourceHelm {
		job.Namespace, job.Helm, job.Capabilities = req.Namespace, req.Helm, req.Capabilities
		job.Helm.ReleaseName = cmp.Or(req.Helm.ReleaseName, req.Release)
	}
	return job
}

// settings returns a hash of a job without owner and tree.
func (j Job) settings() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %q %s\n", builtVersion, j.Kind, j.Path, j.Limits.Key())
	if j.Kind == fleet.SourceHelm {
		fmt.Fprintf(h, "%q %q %q %q %t %q\n", j.Namespace, j.Helm.ReleaseName, j.Helm.ValuesFiles, j.Helm.Values, j.Helm.SkipCRDs, j.Capabilities.Hash())
		for _, set := range j.Helm.Set {
			fmt.Fprintf(h, "set %q %q\n", set.Type, set.Expression)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// keyOfReads returns the key of a build.
func keyOfReads(ctx context.Context, tree filetree.Tree, req Request, kind fleet.SourceKind, reads []string) (string, error) {
	if len(reads) == 0 {
		return "", nil
	}
	sum, err := treefs.Fingerprint(ctx, tree, reads)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %q %t\n", req.job(tree, kind).settings(), sum, req.Namespace, req.AllowEmpty)
	writeVariables(h, req.Variables)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// reads returns the read set of a build, including the files that were read to detect its kind.
func (req Request) reads(built []string) []string {
	if req.Kind != fleet.SourceDetected {
		return built
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(built, detectionReads(req.Path)))))
}

func (r *Result) build(ctx context.Context, tree filetree.Tree, req Request, builder Builder) ([]manifest.Object, error) {
	if builder == nil {
		return nil, &Error{Path: cleanPath(req.Path), Problem: fmt.Sprintf("the kind is %s, but only plain manifests can be rendered here", r.Kind)}
	}
	built, err := builder.Build(ctx, req.job(tree, r.Kind))
	var failed *Failed
	if errors.As(err, &failed) {
		r.Reads = req.reads(failed.Reads)
	}
	if err != nil {
		return nil, err
	}
	r.Reads, r.Volatile, r.Notes = req.reads(built.Reads), built.Volatile, built.Notes
	r.Files = len(r.Reads)
	if most := req.Limits.OrDefault().Objects; len(built.Objects) > most {
		return nil, &Error{Path: cleanPath(req.Path), Problem: fmt.Sprintf("%s gives %d objects, more than the %d that are allowed",
			kindWords[r.Kind], len(built.Objects), most)}
	}
	if r.Volatile {
		req.Capabilities = fleet.Capabilities{}
	}
	r.Key, err = keyOfReads(ctx, tree, req, r.Kind, r.Reads)
	return built.Objects, err
}
