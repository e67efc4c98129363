package kustomize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/provenance"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Request is the request for a render.
type Request struct {
	Path string // folder in the tree that holds the kustomization
}

// Result is a finished build.
type Result struct {
	Objects     []manifest.Object // Source is the kustomization that was built
	SetsOpenAPI bool              // the build set the schema of the process: use another process for the next build
	Notes       []string          // information for the user, such as deprecated fields
}

// Build renders a kustomization with the default options of kustomize build. A user error is a [*treefs.Error].
func Build(ctx context.Context, files treefs.Files, req Request) (Result, error) {
	folder := path.Clean(cmp.Or(strings.TrimPrefix(req.Path, "/"), "."))
	tree := &tree{ctx: ctx, files: files}
	name, err := tree.kustomizationIn(folder)
	if err != nil {
		return Result{}, err
	}
	resources, err := run(tree, folder)
	if tree.setsOpenAPI {
		openapi.ResetOpenAPI() // the next build would use the schema of this one
	}
	if err != nil {
		return Result{}, tree.explain(name, err)
	}
	result := Result{SetsOpenAPI: tree.setsOpenAPI, Notes: tree.notes}
	for _, r := range resources.Resources() {
		if err := nameVersion(r); err != nil {
			return Result{}, tree.explain(name, err)
		}
		// The printed output is parsed, because tests compare it with the output of kustomize build.
		text, err := r.AsYAML()
		if err != nil {
			return Result{}, &treefs.Error{Path: name, Problem: plainWords(fmt.Sprintf("%s: %v", r.CurId(), err))}
		}
		objects, err := manifest.Parse(name, text)
		var user *manifest.Error
		if errors.As(err, &user) {
			return Result{}, &treefs.Error{Path: name, Problem: fmt.Sprintf("%s: %s", r.CurId(), user.Problem)}
		}
		if err != nil {
			return Result{}, err
		}
		result.Objects = append(result.Objects, objects...)
	}
	return result, nil
}

// version is the version of the kustomize program with these libraries.
const version = "v5.8.2"

// nameVersion corrects the label of buildMetadata managedByLabel: the library uses the version of the program
// that contains it, which is not kustomize.
func nameVersion(r *resource.Resource) error {
	labels := r.GetLabels()
	if labels[konfig.ManagedbyLabelKey] != "kustomize-"+provenance.GetProvenance().Semver() {
		return nil
	}
	labels[konfig.ManagedbyLabelKey] = "kustomize-" + version
	return r.SetLabels(labels)
}

// run builds. A panic of the library is caused by its input.
func run(tree filesys.FileSystem, folder string) (resources resmap.ResMap, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("kustomize crashed on this input: %v", r)
		}
	}()
	return krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(tree, "/"+folder)
}

// kustomizationIn finds the kustomization of a folder.
func (t *tree) kustomizationIn(folder string) (string, error) {
	node, err := t.stat(folder)
	if err != nil {
		return "", t.userError(folder, "there is no such folder at this revision", err)
	}
	if node.Kind != treefs.Dir {
		return "", &treefs.Error{Path: folder, Problem: "a file, but the folder of a kustomization is required"}
	}
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		name = path.Join(folder, name)
		if _, err := t.stat(name); err == nil {
			return name, nil
		}
	}
	return "", &treefs.Error{Path: folder, Problem: "no kustomization: the folder contains none of " + strings.Join(konfig.RecognizedKustomizationFileNames(), ", ")}
}
