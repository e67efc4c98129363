// Package render turns a tree of files and settings into a set of Kubernetes objects. It works
// offline and gives the same result for the same input, on the server and in the CLI alike. Plain
// manifests it reads itself; Kustomize and Helm are left to a [Builder].
//
// [Key] names everything that a render would read without rendering: equal keys mean equal results, so a
// commit that touches nothing of a deployment renders nothing. What plain manifests read follows from the
// request; what the others read is known after a first render, and is kept with it ([Result.Reads]). A
// render is whole or an error: one bad file refuses all of it, and an empty result is an error unless it
// is asked for, so that an empty tree deletes nothing.
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

// Limits bound what one render may read. Zero fields mean the default.
type Limits = plain.Limits

// DefaultLimits returns the limits of a render that sets none.
func DefaultLimits() Limits { return plain.DefaultLimits() }

// CheckGlob returns an [*Error] unless a Request may have the glob.
func CheckGlob(glob string) error { return plain.CheckGlob(glob) }

// Error is a user's mistake in the request or in how the tree looks.
type Error = plain.Error

// Request says what to render.
type Request struct {
	Kind       fleet.SourceKind // SourceDetected means what Detect says
	Path       string           // folder in the tree; "" and "." are its root
	Globs      []string         // for plain manifests: which files below Path; none means fleet.DefaultGlob
	Namespace  string           // of objects that name none: they count as there when duplicates are looked for; a chart is told it
	AllowEmpty bool             // accept a result without objects
	// Variables replace ${name} in the string values of objects, however those came about; one that is
	// not defined is a user's mistake. Only when there are any is ${…} looked at.
	Variables map[string]string
	Limits    Limits

	Owner        string     // see Job
	Release      string     // the name of a chart's release where Helm says none
	Helm         fleet.Helm // for charts
	Capabilities fleet.Capabilities
}

// Result is a finished render.
type Result struct {
	Set   *manifest.Set
	Kind  fleet.SourceKind // never SourceDetected
	Key   string           // as Key returns it for Reads; of a volatile one, without capabilities
	Files int              // that were read, or of which it was looked whether they are there
	// Reads is what Key needs to be told for this kind of source; none for plain manifests.
	Reads    []string
	Volatile bool     // see fleet.Rendered
	Notes    []string // what a user should know of it
}

// IsUserError reports whether err is a mistake in the repository or in the request, which only its
// author can mend, rather than a fault in reading it, which may pass.
func IsUserError(err error) bool {
	var request *Error
	var file *manifest.Error
	var duplicate *manifest.DuplicateError
	var tree *treefs.Error
	var source *filetree.Error
	return errors.As(err, &request) || errors.As(err, &file) || errors.As(err, &duplicate) || errors.As(err, &tree) || errors.As(err, &source)
}

// Key returns a hash of everything that Render would read, and of the settings. It lists folders and reads
// no file. It fails as Render would for mistakes that show without reading. reads are those of an earlier
// render with the same settings; where they are needed and there are none the key is "": nothing is known.
//
// A chart has the capabilities in its key. Who does not want a volatile one rendered again because of them
// leaves them out, as the Key of its Result does.
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

// Files names the plain manifests that a request for this folder and these globs would read, without
// reading any.
func Files(ctx context.Context, tree filetree.Tree, folder string, globs []string, limits Limits) ([]string, error) {
	files, _, err := plain.Select(ctx, tree, folder, globs, limits)
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Path
	}
	return names, err
}

// Render returns the objects that req asks for. builder may be nil: then only plain manifests can be
// rendered, and the others are a user's mistake. One that shows in a build is a [Failed].
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

// fill renders. Where it fails, Reads is what was read until then.
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
		r.note("these folders hold a kustomization file, which is not used: their other files are read as plain manifests. "+
			"Deploy such a folder by a deployment of its own to have it built, or leave it out by globs: %s", some(roots))
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
		problem = fmt.Sprintf("%d files match and hold no object", files)
	}
	return &Error{Path: path.Clean("/" + req.Path)[1:], Reason: fleet.ReasonSourceEmpty, Problem: problem +
		": an empty result is refused, so that nothing is deleted by mistake; allow it with allowEmpty"}
}

// keyVersion changes when the same input is rendered to something else than before.
const keyVersion = "plain/2"

// keyOf quotes what it hashes, so that no two inputs look alike.
func keyOf(files []plain.File, req Request) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %q %t %s %d\n", keyVersion, req.Namespace, req.AllowEmpty, req.Limits.OrDefault().Key(), len(files))
	for _, f := range files {
		fmt.Fprintf(hash, "%q %q\n", f.Path, f.Entry.ID)
	}
	writeVariables(hash, req.Variables)
	return hex.EncodeToString(hash.Sum(nil))
}
