package helm

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// DefaultNamespace is the default release namespace of a chart.
const DefaultNamespace = "default"

// Request is the request for a render.
type Request struct {
	Path         string     // folder of the chart in the tree
	Namespace    string     // release namespace of the chart; "" means DefaultNamespace
	Helm         fleet.Helm // with ReleaseName set
	Capabilities fleet.Capabilities
}

// Result is a rendered chart.
type Result struct {
	Objects  []manifest.Object // Source is the path of the template, as if subcharts were folders
	Volatile bool              // a template uses time or randomness
	Notes    []string          // information for the user, such as omitted hooks
}

// Build renders a chart. A user error is a [*treefs.Error] or an error of package manifest.
func Build(ctx context.Context, files treefs.Files, req Request) (Result, error) {
	b := &builder{files: files, req: req, folder: path.Clean(cmp.Or(strings.TrimPrefix(req.Path, "/"), "."))}
	c, err := b.load(ctx)
	if err != nil {
		return Result{}, err
	}
	values, err := b.userValues(ctx)
	if err != nil {
		return Result{}, err
	}
	prepared, err := b.prepare(c, values)
	if err != nil {
		return Result{}, err
	}
	rendered, err := engine.Engine{}.RenderWithContext(ctx, c, prepared)
	if err != nil {
		return Result{}, b.templateError(err)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	volatile := isVolatile(c, prepared)
	objects, err := b.objects(c, rendered)
	if err != nil {
		return Result{}, err
	}
	return Result{Objects: objects, Volatile: volatile, Notes: b.notes}, nil
}

// builder is one build.
type builder struct {
	files  treefs.Files
	req    Request
	folder string // of the chart in the tree
	notes  []string
}

// problem is a user error in a file of the chart.
func (b *builder) problem(file, format string, args ...any) error {
	return &treefs.Error{Path: path.Join(b.folder, file), Problem: fmt.Sprintf(format, args...)}
}

func (b *builder) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.notes, text) {
		b.notes = append(b.notes, text)
	}
}

// prepare determines the enabled subcharts and the values for the templates.
func (b *builder) prepare(c *chart.Chart, values map[string]any) (common.Values, error) {
	if err := chartutil.ValidateReleaseName(b.req.Helm.ReleaseName); err != nil {
		return nil, &treefs.Error{Problem: fmt.Sprintf("release name %q: %v", b.req.Helm.ReleaseName, err)}
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, b.problem("Chart.yaml", "dependencies: %v", err)
	}
	capabilities, err := b.capabilities()
	if err != nil {
		return nil, err
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, capabilities.KubeVersion.String()) {
		return nil, b.problem("Chart.yaml", "the chart requires Kubernetes %s, but it is rendered for %s", want, capabilities.KubeVersion.Version)
	}
	b.dropRemoteSchemas(c)
	prepared, err := util.ToRenderValues(c, values, common.ReleaseOptions{
		Name:      b.req.Helm.ReleaseName,
		Namespace: cmp.Or(b.req.Namespace, DefaultNamespace),
		Revision:  1,
		IsInstall: true,
	}, capabilities)
	if err != nil {
		return nil, b.problem("values.yaml", "%s", oneLine(err.Error()))
	}
	return prepared, nil
}
