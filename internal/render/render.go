// Package render turns a tree of files and settings into a set of Kubernetes objects. It works
// offline, runs nothing, and gives the same result for the same input, on the server and in the CLI
// alike.
//
// [Key] names everything that a render would read without reading it: equal keys mean equal
// results, so a commit that touches nothing of a deployment renders nothing. A render is whole or
// an error: one bad file refuses all of it, and an empty result is an error unless it is asked
// for, so that an empty tree deletes nothing.
package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/plain"
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
	Path       string   // folder in the tree; "" and "." are its root
	Globs      []string // which files below Path; none means fleet.DefaultGlob
	Namespace  string   // of objects that name none: they count as there when duplicates are looked for
	AllowEmpty bool     // accept a result without objects
	// Variables replace ${name} in the string values of objects; one that is not defined is a user's
	// mistake. Only when there are any is ${…} looked at.
	Variables map[string]string
	Limits    Limits
}

// Result is a finished render.
type Result struct {
	Set   *manifest.Set
	Key   string // as Key returns it
	Files int    // that were read
}

// IsUserError reports whether err is a mistake in the repository or in the request, which only its
// author can mend, rather than a fault in reading it, which may pass.
func IsUserError(err error) bool {
	var request *Error
	var file *manifest.Error
	var duplicate *manifest.DuplicateError
	return errors.As(err, &request) || errors.As(err, &file) || errors.As(err, &duplicate)
}

// Key returns a hash of everything that Render would read: the paths and contents of matching
// files and the settings. It lists folders and reads no file. It fails as Render would for
// mistakes that show without reading.
func Key(ctx context.Context, tree filetree.Tree, req Request) (string, error) {
	files, err := plain.Select(ctx, tree, req.Path, req.Globs, req.Limits)
	if err != nil {
		return "", err
	}
	return keyOf(files, req), nil
}

// Render returns the objects that req asks for.
func Render(ctx context.Context, tree filetree.Tree, req Request) (*Result, error) {
	files, err := plain.Select(ctx, tree, req.Path, req.Globs, req.Limits)
	if err != nil {
		return nil, err
	}
	objects, err := plain.Parse(ctx, tree, files, req.Limits)
	if err != nil {
		return nil, err
	}
	if len(req.Variables) > 0 {
		if objects, err = substitute(objects, req.Variables, req.Limits.OrDefault().TotalBytes); err != nil {
			return nil, err
		}
	}
	if len(objects) == 0 && !req.AllowEmpty {
		return nil, emptyError(req, len(files))
	}
	set, err := manifest.NewSet(objects, req.Namespace)
	if err != nil {
		return nil, err
	}
	return &Result{Set: set, Key: keyOf(files, req), Files: len(files)}, nil
}

func emptyError(req Request, files int) error {
	problem := "no file matches"
	if files > 0 {
		problem = fmt.Sprintf("%d files match and hold no object", files)
	}
	return &Error{Path: path.Clean("/" + req.Path)[1:], Problem: problem +
		": an empty result is refused, so that nothing is deleted by mistake; allow it with allowEmpty"}
}

// keyVersion changes when the same input is rendered to something else than before.
const keyVersion = "plain/1"

// keyOf quotes what it hashes, so that no two inputs look alike.
func keyOf(files []plain.File, req Request) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %q %t %+v %d\n", keyVersion, req.Namespace, req.AllowEmpty, req.Limits.OrDefault(), len(files))
	for _, f := range files {
		fmt.Fprintf(hash, "%q %q\n", f.Path, f.Entry.ID)
	}
	writeVariables(hash, req.Variables)
	return hex.EncodeToString(hash.Sum(nil))
}
