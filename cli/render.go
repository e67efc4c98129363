package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/filetree/disktree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
)

// renderFormats are the ways to print a set of objects.
var renderFormats = []string{"yaml", "json", "name"}

// renderKinds are what --kind takes.
var renderKinds = []string{string(fleet.SourcePlain), string(fleet.SourceKustomize), string(fleet.SourceHelm)}

// renderFlags are what a deployment would say.
type renderFlags struct {
	request render.Request
	source  sourceFlags
	format  string
	digest  bool
	limits  child.Limits
}

func (a *app) renderCommand() *cobra.Command {
	r := renderFlags{format: "yaml", limits: child.Limits{Time: 30 * time.Second, Memory: 1 << 30, Output: 64 << 20}} // as the server's
	cmd := &cobra.Command{
		Use:   "render DIR",
		Short: "Print the objects that a folder renders to, as the server would deploy them",
		Long: "Renders plain manifests, a Kustomize root or a Helm chart on this machine, with the code and within the limits of the server. It speaks to no\n" +
			"server and fetches nothing. Files are taken as they are on disk, committed or not. Inside of a Git work tree the whole of it counts as the\n" +
			"repository, so that DIR may use bases and values files beside it; elsewhere, or with --path, DIR is the repository.\n\n" +
			"Objects come in the order of the bundle. -o json prints the bundle itself, byte by byte: one object per line.",
		Example: "kedge render overlays/prod\n" +
			"kedge render charts/web --values-file prod.yaml --helm-release web --namespace shop --kube-version v1.36.3\n" +
			"kedge render . --path apps/web --var REGION=eu --digest",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.complete(cmd.Flags()); err != nil {
			return err
		}
		return a.render(cmd.Context(), args[0], r)
	}
	f, q := cmd.Flags(), &r.request
	f.StringVar(&q.Path, "path", "", "folder in DIR, which is then the root of the repository")
	r.source.add(f)
	f.StringArrayVar(&q.Globs, "glob", nil, "which files, for plain manifests; may be repeated (default \""+fleet.DefaultGlob+"\")")
	f.StringVar(&q.Namespace, "namespace", "default", "namespace of the deployment")
	pairsFlag(f, &q.Variables, "var", "replace ${NAME} in the objects")
	f.BoolVar(&q.AllowEmpty, "allow-empty", false, "accept a result without objects")
	f.StringVar(&q.Capabilities.KubeVersion, "kube-version", "", "version of Kubernetes that a chart is rendered for")
	f.StringSliceVar(&q.Capabilities.APIVersions, "api-versions", nil, "API that a chart finds in the cluster, such as cert-manager.io/v1; in addition to those of Kubernetes unless v1 is named too")
	f.DurationVar(&r.limits.Time, "render-timeout", r.limits.Time, "how long Kustomize or Helm may take")
	f.Var((*byteSize)(&r.limits.Memory), "render-memory", "how much memory they may have")
	f.Var((*byteSize)(&r.limits.Output), "render-output", "how large the objects may be together")
	f.StringVarP(&r.format, "output", "o", r.format, "how to print: "+strings.Join(renderFormats, ", "))
	f.BoolVar(&r.digest, "digest", false, "print only the digest of the bundle")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(renderFormats, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(renderKinds, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (a *app) render(ctx context.Context, dir string, r renderFlags) error {
	if !slices.Contains(renderFormats, r.format) {
		return &exitError{exitUsage, fmt.Sprintf("-o %s is not known", r.format), "use one of " + strings.Join(renderFormats, ", ")}
	}
	root, err := r.locate(dir)
	if err != nil {
		return err
	}
	tree, err := disktree.Open(root)
	if err != nil {
		return err
	}
	defer tree.Close() //nolint:errcheck // nothing was written
	pool, err := child.NewPool(child.Config{Program: a.RenderProgram, Processes: 1, Idle: -1, Limits: r.limits})
	if err != nil {
		return &exitError{exitUsage, err.Error(), ""}
	}
	defer pool.Close()
	result, err := render.Render(ctx, tree, r.request, pool)
	if err != nil {
		return err
	}
	return a.printRendered(result, r)
}

// locate finds the root of the repository and completes the request by where in it the folder is.
func (r *renderFlags) locate(dir string) (root string, err error) {
	if root, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("looking for %q: %w", dir, err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", fmt.Errorf("looking for %q: %w", dir, err)
	}
	if r.request.Path == "" {
		inside := root
		root = workTree(inside)
		below, err := filepath.Rel(root, inside)
		if err != nil {
			return "", fmt.Errorf("looking for %q: %w", dir, err)
		}
		r.request.Path = filepath.ToSlash(below)
	}
	r.request.Release = releaseName(path.Base(path.Join(filepath.ToSlash(root), r.request.Path)))
	return root, nil
}

// workTree returns the nearest folder at or above dir that Git keeps its own in, or dir itself.
func workTree(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// releaseName makes a name that Helm takes out of that of a folder.
func releaseName(folder string) string {
	if fleet.CheckName("release", folder) != nil {
		return "release"
	}
	return folder
}

// complete puts what was said of the source into the request.
func (r *renderFlags) complete(f *pflag.FlagSet) error {
	if kind := r.source.kind; kind != "" && !slices.Contains(renderKinds, kind) {
		return &exitError{exitUsage, fmt.Sprintf("--kind %s is not known", kind), "use one of " + strings.Join(renderKinds, ", ")}
	}
	r.request.Kind = fleet.SourceKind(r.source.kind)
	said, err := r.source.helm(f, nil)
	if err != nil || said == nil {
		return err
	}
	r.request.Helm = fleet.Helm{ReleaseName: said.ReleaseName, ValuesFiles: said.ValuesFiles, SkipCRDs: said.SkipCRDs, Set: helmSets(said.Set)}
	if len(said.Values) > 0 {
		text, err := json.Marshal(said.Values)
		if err != nil {
			return fmt.Errorf("encoding the values: %w", err)
		}
		r.request.Helm.Values = string(text)
	}
	return nil
}

// printRendered writes objects to standard output and whatever a user should know beside it.
func (a *app) printRendered(result *render.Result, r renderFlags) error {
	for _, note := range result.Notes {
		fmt.Fprintln(a.Err, "note:", printable(note))
	}
	if result.Volatile {
		fmt.Fprintln(a.Err, "note: the chart uses time or randomness: rendered again it gives something else, and the server renders it again only when what it reads has changed")
	}
	var text []byte
	var err error
	switch {
	case r.digest:
		text = []byte(result.Set.Digest() + "\n")
	case r.format == "json":
		text = result.Set.Encode()
	case r.format == "name":
		for _, o := range result.Set.Objects() {
			text = append(text, o.Ref.String()+"\n"...)
		}
	default:
		text, err = yamlOf(result.Set.Objects())
	}
	if err != nil {
		return err
	}
	_, err = a.Out.Write(text)
	return err
}

func yamlOf(objects []manifest.Object) ([]byte, error) {
	var out []byte
	for _, o := range objects {
		text, err := yaml.Marshal(o.Content)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("encoding %s", o.Ref), err)
		}
		out = append(out, "---\n# Source: "+printable(cmp.Or(o.Source, "-"))+"\n"+string(text)...)
	}
	return out, nil
}

// byteSize is a number of bytes on the command line, as Kubernetes writes them: 512Mi, 1Gi.
type byteSize int64

// String implements pflag.Value.
func (s *byteSize) String() string {
	return quantity.NewQuantity(int64(*s), quantity.BinarySI).String()
}

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error {
	q, err := quantity.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("%q is not a size such as 512Mi or 1Gi", text)
	}
	*s = byteSize(q.Value())
	return nil
}

// Type implements pflag.Value.
func (s *byteSize) Type() string { return "size" }
