package helm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

const (
	// maxUnpacked limits the unpacked size of all archives of a chart, including nested ones.
	maxUnpacked = 64 << 20
	// maxArchives limits the nesting of archives.
	maxArchives = 8
	// maxChartFile limits the size of Chart.yaml.
	maxChartFile = 1 << 20
)

// load loads the chart as helm does from a folder, without the files that .helmignore excludes.
func (b *builder) load(ctx context.Context) (*chart.Chart, error) {
	b.prefetch(ctx)
	root, err := b.checkFolder(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := b.ignoreRules(ctx)
	if err != nil {
		return nil, err
	}
	w := walker{builder: b, rules: rules}
	if err := w.walk(ctx, ".", root, nil); err != nil {
		return nil, err
	}
	budget := int64(maxUnpacked)
	for _, f := range w.files {
		if err := b.checkFile(f, &budget); err != nil {
			return nil, err
		}
	}
	c, err := loader.LoadFiles(w.files)
	if err != nil {
		return nil, b.problem("Chart.yaml", "%s", oneLine(err.Error()))
	}
	return c, b.checkChart(c)
}

// prefetch requests the files that every chart needs.
func (b *builder) prefetch(ctx context.Context) {
	q := treefs.Questions{
		Stat: []string{b.folder, path.Join(b.folder, "Chart.yaml")},
		Read: []string{path.Join(b.folder, ignore.HelmIgnore)},
		List: []string{b.folder},
	}
	treefs.Prefetch(ctx, b.files, q)
}

// checkFolder returns the folder of the chart.
func (b *builder) checkFolder(ctx context.Context) (treefs.Node, error) {
	node, err := b.files.Stat(ctx, b.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return node, b.problem("", "there is no such folder at this revision")
	}
	if err != nil {
		return node, err
	}
	if node.Kind != treefs.Dir {
		return node, b.problem("", "a file, but the folder of a chart is required")
	}
	_, err = b.files.Stat(ctx, path.Join(b.folder, "Chart.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return node, b.problem("", "not a chart: the folder has no Chart.yaml")
	}
	return node, err
}

func (b *builder) ignoreRules(ctx context.Context) (*ignore.Rules, error) {
	rules := ignore.Empty()
	data, err := b.files.Read(ctx, path.Join(b.folder, ignore.HelmIgnore))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if rules, err = ignore.Parse(bytes.NewReader(data)); err != nil {
			return nil, b.problem(ignore.HelmIgnore, "%v", err)
		}
	}
	rules.AddDefaults()
	return rules, nil
}

// checkChart refuses charts that helm refuses to install.
func (b *builder) checkChart(c *chart.Chart) error {
	if kind := c.Metadata.Type; kind != "" && kind != "application" {
		return b.problem("Chart.yaml", "a chart of type %q contains nothing to deploy: deploy a chart that depends on it", kind)
	}
	var missing []string
	for _, want := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(have *chart.Chart) bool { return have.Name() == want.Name }) {
			missing = append(missing, want.Name)
		}
	}
	if len(missing) > 0 {
		return b.problem("Chart.yaml", "dependencies are missing in the folder charts: %s: "+
			"renders download nothing; run helm dependency build and commit the result", strings.Join(missing, ", "))
	}
	if c.Metadata.Deprecated {
		b.note("the chart %s is deprecated", c.Name())
	}
	return nil
}

// walker collects the files of a chart.
type walker struct {
	*builder
	rules *ignore.Rules
	files []*archive.BufferedFile
}

// walk visits dir, which is below the chart and is called folder in the tree. above has the real folders on the
// path to it.
func (w *walker) walk(ctx context.Context, dir string, here treefs.Node, above []string) error {
	where := path.Join(w.folder, dir)
	if slices.Contains(above, here.Real) {
		return w.problem(dir, "a symbolic link to a folder that contains it")
	}
	above = append(above[:len(above):len(above)], here.Real)
	nodes, err := w.builder.files.List(ctx, where)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n treefs.Node) bool { return w.rules.Ignore(path.Join(dir, n.Name), info{n}) })
	w.prefetchAll(ctx, where, nodes)
	for _, n := range nodes {
		name := path.Join(dir, n.Name)
		if n.Kind != treefs.Dir {
			if err := w.add(ctx, name); err != nil {
				return err
			}
			continue
		}
		below, err := w.builder.files.Stat(ctx, path.Join(w.folder, name))
		if err != nil {
			return err
		}
		if err := w.walk(ctx, name, below, above); err != nil {
			return err
		}
	}
	return nil
}

// prefetchAll requests all files of a folder.
func (w *walker) prefetchAll(ctx context.Context, where string, nodes []treefs.Node) {
	var q treefs.Questions
	for _, n := range nodes {
		name := path.Join(where, n.Name)
		if n.Kind == treefs.Dir {
			q.Stat, q.List = append(q.Stat, name), append(q.List, name)
		} else {
			q.Read = append(q.Read, name)
		}
	}
	treefs.Prefetch(ctx, w.builder.files, q)
}

func (w *walker) add(ctx context.Context, name string) error {
	data, err := w.builder.files.Read(ctx, path.Join(w.folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return w.problem(name, "a symbolic link without a target")
	}
	if err != nil {
		return err
	}
	w.files = append(w.files, &archive.BufferedFile{Name: name, Data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))})
	return nil
}

// info adapts a node to the rules of .helmignore.
type info struct{ treefs.Node }

func (i info) Name() string       { return i.Node.Name }
func (i info) IsDir() bool        { return i.Kind == treefs.Dir }
func (i info) Mode() fs.FileMode  { return 0 }
func (i info) Size() int64        { return 0 }
func (i info) Sys() any           { return nil }
func (i info) ModTime() time.Time { return time.Time{} }
