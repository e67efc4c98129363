// Package libraries lists the renderers for children. It is separate from package child so that only main links
// the renderers.
package libraries

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/helm"
	"github.com/kedge-dev/kedge/internal/render/kustomize"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Renderers are the renderers of this program.
func Renderers() map[fleet.SourceKind]child.Renderer {
	return map[fleet.SourceKind]child.Renderer{
		fleet.SourceKustomize: func(ctx context.Context, files treefs.Files, req child.Request) (child.Result, error) {
			r, err := kustomize.Build(ctx, files, kustomize.Request{Path: req.Path})
			// The read set of a failed build may be incomplete.
			return child.Result{Objects: r.Objects, Notes: r.Notes, Tainted: r.SetsOpenAPI || err != nil}, err
		},
		fleet.SourceHelm: func(ctx context.Context, files treefs.Files, req child.Request) (child.Result, error) {
			r, err := helm.Build(ctx, files, helm.Request{Path: req.Path, Namespace: req.Namespace, Helm: req.Helm, Capabilities: req.Capabilities})
			return child.Result{Objects: r.Objects, Notes: r.Notes, Volatile: r.Volatile}, err
		},
	}
}
