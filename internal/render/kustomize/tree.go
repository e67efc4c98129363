package kustomize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/kedge-dev/kedge/internal/render/alias"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// tree provides files to Kustomize as a disk whose root is the root of the repository. It is used for one
// build, in one goroutine.
type tree struct {
	ctx   context.Context //nolint:containedctx // the interface of the library has none
	files treefs.Files

	first       error // the first user error: Kustomize drops some errors and changes others
	setsOpenAPI bool
	notes       []string
}

var _ filesys.FileSystem = (*tree)(nil)

var errReadOnly = errors.New("the files of a commit cannot be changed")

// inside converts a path of Kustomize to a path in the repository.
func inside(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/"); name == "" {
		return "."
	}
	return name
}

func (t *tree) stat(name string) (treefs.Node, error) {
	node, err := t.files.Stat(t.ctx, inside(name))
	return node, t.keep(err)
}

// keep records an error for the user.
func (t *tree) keep(err error) error {
	var user *treefs.Error
	if t.first == nil && err != nil && (errors.As(err, &user) || !errors.Is(err, fs.ErrNotExist)) {
		t.first = err
	}
	return err
}

// IsDir implements filesys.FileSystem.
func (t *tree) IsDir(name string) bool {
	node, err := t.stat(name)
	return err == nil && node.Kind == treefs.Dir
}

// Exists implements filesys.FileSystem.
func (t *tree) Exists(name string) bool {
	_, err := t.stat(name)
	return err == nil
}

// CleanedAbs implements filesys.FileSystem. As on a disk, it follows links, so that a link cannot reach a file
// outside the folder of a kustomization.
func (t *tree) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	node, err := t.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("%q: %w", inside(name), errMissing)
	}
	if err != nil {
		return "", "", err
	}
	at := path.Join("/", node.Real)
	if node.Kind == treefs.Dir {
		return filesys.ConfirmedDir(at), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(at)), path.Base(at), nil
}

// errMissing is worded to fit into errors of Kustomize.
var errMissing = fmt.Errorf("there is no such file or folder at this revision (%w)", fs.ErrNotExist)

// ReadFile implements filesys.FileSystem.
func (t *tree) ReadFile(name string) ([]byte, error) {
	name = inside(name)
	data, err := t.files.Read(t.ctx, name)
	if err != nil {
		return nil, t.keep(err)
	}
	if err := alias.Check(data); err != nil {
		return nil, t.keep(&treefs.Error{Path: name, Problem: err.Error()})
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name)) {
		err = t.checkKustomization(name, data)
	} else {
		err = checkPlugins(name, data)
	}
	if err != nil {
		return nil, t.keep(err)
	}
	return slices.Clone(data), nil
}

// ReadDir implements filesys.FileSystem.
func (t *tree) ReadDir(name string) ([]string, error) {
	nodes, err := t.files.List(t.ctx, inside(name))
	if err != nil {
		return nil, t.keep(err)
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names, nil
}

// Open implements filesys.FileSystem. No build opens a file.
func (t *tree) Open(name string) (filesys.File, error) {
	return nil, fmt.Errorf("opening %q: %w", inside(name), errors.ErrUnsupported)
}

// Glob implements filesys.FileSystem. No build searches for files.
func (t *tree) Glob(pattern string) ([]string, error) {
	return nil, fmt.Errorf("searching for %q: %w", pattern, errors.ErrUnsupported)
}

// Walk implements filesys.FileSystem. No build walks folders.
func (t *tree) Walk(name string, _ filepath.WalkFunc) error {
	return fmt.Errorf("walking %q: %w", inside(name), errors.ErrUnsupported)
}

// Create implements filesys.FileSystem.
func (t *tree) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir implements filesys.FileSystem.
func (t *tree) Mkdir(string) error { return errReadOnly }

// MkdirAll implements filesys.FileSystem.
func (t *tree) MkdirAll(string) error { return errReadOnly }

// RemoveAll implements filesys.FileSystem.
func (t *tree) RemoveAll(string) error { return errReadOnly }

// WriteFile implements filesys.FileSystem.
func (t *tree) WriteFile(string, []byte) error { return errReadOnly }
