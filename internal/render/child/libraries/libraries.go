// Package libraries names the renderers that our programs render with, in children. It is apart from package
// child so that only main links them.
package libraries

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/helm"
	"github.com/kedge-dev/kedge/internal/render/kustomize"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Renderers are the libraries that this program renders with.
func Renderers() map[fleet.SourceKind]child.Renderer {
	return map[fleet.SourceKind]child.Renderer{
		fleet.SourceKustomize: func(ctx context.Context, files treefs.Files, req child.Request) (child.Result, error) {
			r, err := kustomize.Build(ctx, files, kustomize.Request{Path: req.Path})
			// A build that failed does not say how far it came.
			return child.Result{Objects: r.Objects, Notes: r.Notes, Tainted: r.SetsOpenAPI || err != nil}, err
		},
		fleet.SourceHelm: func(ctx context.Context, files treefs.Files, req child.Request) (child.Result, error) {
			r, err := helm.Build(ctx, files, helm.Request{Path: req.Path, Namespace: req.Namespace, Helm: req.Helm, Capabilities: req.Capabilities})
			return child.Result{Objects: r.Objects, Notes: r.Notes, Volatile: r.Volatile}, err
		},
	}
}
