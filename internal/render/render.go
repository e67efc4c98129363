// Package render turns a tree of files and settings into a set of Kubernetes objects. It works offline and is
// deterministic, and the server and the CLI use the same code. It parses plain manifests itself; a [Builder]
// runs Kustomize and Helm.
//
// [Key] identifies everything that a render would read, without a render: equal keys mean equal results, so a
// commit that does not affect a deployment causes no render. For plain manifests, the request determines the
// read set. For the others, the first render determines it, and it is kept with the result ([Result.Reads]). A
// render is complete or an error: one invalid file fails all of it, and an empty result is an error unless
// allowed, so that an empty tree deletes nothing.
package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/plain"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Limits are the limits of one render. Zero fields mean the default.
type Limits = plain.Limits

// DefaultLimits returns the default limits.
func DefaultLimits() Limits { return plain.DefaultLimits() }

// CheckGlob returns an [*Error] if the glob is not valid in a Request.
func CheckGlob(glob string) error { return plain.CheckGlob(glob) }

// Error is a user error in the request or in the structure of the tree.
type Error = plain.Error

// Request is the request for a render.
type Request struct {
	Kind       fleet.SourceKind // SourceDetected means the result of Detect
	Path       string           // folder in the tree; "" and "." are its root
	Globs      []string         // for plain manifests: files below Path; none means fleet.DefaultGlob
	Namespace  string           // namespace of objects that have none, for the detection of duplicates; release namespace of a chart
	AllowEmpty bool             // accept a result without objects
	// Variables replace ${name} in the string values of objects from any kind of source; an undefined one is a
	// user error. Without variables, ${…} stays unchanged.
	Variables map[string]string
	Limits    Limits

	Owner        string     // see Job
	Release      string     // default release name of a chart
	Helm         fleet.Helm // for charts
	Capabilities fleet.Capabilities
}

// Result is a completed render.
type Result struct {
	Set   *manifest.Set
	Kind  fleet.SourceKind // never SourceDetected
	Key   string           // as Key returns it for Reads; for a volatile chart, without capabilities
	Files int              // number of files that were read or checked for existence
	// Reads is an argument of Key for this kind of source; empty for plain manifests.
	Reads    []string
	Volatile bool     // see fleet.Rendered
	Notes    []string // information for the user
}

// IsUserError reports whether err is a mistake in the repository or in the request, which only its author can
// fix, and not a fault in reading it, which may be transient.
func IsUserError(err error) bool {
	var request *Error
	var file *manifest.Error
	var duplicate *manifest.DuplicateError
	var tree *treefs.Error
	var source *filetree.Error
	return errors.As(err, &request) || errors.As(err, &file) || errors.As(err, &duplicate) || errors.As(err, &tree) || errors.As(err, &source)
}

// Key returns a hash of everything that Render would read, and of the settings. It lists folders and reads no
// file. It fails like Render for errors that are visible without reading. reads is the read set of an earlier
// render with the same settings; if it is needed and absent, the key is "".
//
// The key of a chart includes the capabilities. To avoid another render of a volatile chart because of them,
// omit them, as the Key of its Result does.
func Key(ctx context.Context, tree filetree.Tree, req Request, reads []string) (string, error) {
	kind, err := req.kind(ctx, tree)
	if err != nil {
		return "", err
	}
	if kind != fleet.SourcePlain {
		return keyOfReads(ctx, tree, req, kind, reads)
	}
	files, _, err := plain.Select(ctx, tree, req.Path, req.Globs, req.Limits)
	if err != nil {
		return "", err
	}
	return keyOf(files, req), nil
}

// Files returns the plain manifests that a request with this folder and these globs would read, without reading
// any.
func Files(ctx context.Context, tree filetree.Tree, folder string, globs []string, limits Limits) ([]string, error) {
	files, _, err := plain.Select(ctx, tree, folder, globs, limits)
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Path
	}
	return names, err
}

// Render returns the objects for req. builder may be nil: then it renders only plain manifests, and other kinds
// are a user error. A user error of a build is a [Failed].
func Render(ctx context.Context, tree filetree.Tree, req Request, builder Builder) (*Result, error) {
	kind, err := req.kind(ctx, tree)
	if err != nil {
		return nil, err
	}
	result := &Result{Kind: kind}
	if err := result.fill(ctx, tree, req, builder); err != nil {
		return nil, Fail(err, result.Reads)
	}
	return result, nil
}

// fill renders. After a failure, Reads is the read set up to it.
func (r *Result) fill(ctx context.Context, tree filetree.Tree, req Request, builder Builder) (err error) {
	var objects []manifest.Object
	if r.Kind == fleet.SourcePlain {
		objects, err = r.plain(ctx, tree, req)
	} else {
		objects, err = r.build(ctx, tree, req, builder)
	}
	if err != nil {
		return err
	}
	if len(req.Variables) > 0 {
		if objects, err = substitute(objects, req.Variables, req.Limits.OrDefault().TotalBytes); err != nil {
			return err
		}
	}
	if objects, err = r.checkForeign(objects); err != nil {
		return err
	}
	if len(objects) == 0 && !req.AllowEmpty {
		return emptyError(req, r.Kind, r.Files)
	}
	r.Set, err = manifest.NewSet(objects, req.Namespace)
	return err
}

func (r *Result) plain(ctx context.Context, tree filetree.Tree, req Request) ([]manifest.Object, error) {
	files, roots, err := plain.Select(ctx, tree, req.Path, req.Globs, req.Limits)
	if err != nil {
		return nil, err
	}
	if len(roots) > 0 {
		r.note("these folders contain a kustomization file, which is not used: their other files are read as plain manifests. "+
			"Deploy such a folder with a separate deployment to build it, or exclude it with globs: %s", some(roots))
	}
	r.Key, r.Files = keyOf(files, req), len(files)
	return plain.Parse(ctx, tree, files, req.Limits)
}

func emptyError(req Request, kind fleet.SourceKind, files int) error {
	problem := "no file matches"
	switch {
	case kind != fleet.SourcePlain:
		problem = kindWords[kind] + " gives no object"
	case files > 0:
		problem = fmt.Sprintf("%d files match but contain no object", files)
	}
	return &Error{Path: path.Clean("/" + req.Path)[1:], Reason: fleet.ReasonSourceEmpty, Problem: problem +
		": an empty result is refused, so that it deletes nothing by mistake; allow it with allowEmpty"}
}

// keyVersion must change when equal input renders to another result than before.
const keyVersion = "plain/2"

// keyOf quotes its input, so that different inputs have different hashes.
func keyOf(files []plain.File, req Request) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %q %t %s %d\n", keyVersion, req.Namespace, req.AllowEmpty, req.Limits.OrDefault().Key(), len(files))
	for _, f := range files {
		fmt.Fprintf(hash, "%q %q\n", f.Path, f.Entry.ID)
	}
	writeVariables(hash, req.Variables)
	return hex.EncodeToString(hash.Sum(nil))
}
