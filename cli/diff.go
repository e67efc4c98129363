package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// diffFlags are the flags of kedge diff.
type diffFlags struct {
	outputFlags
	from, to string
	exitCode bool
	local    renderFlags
}

func (a *app) diffCommand() *cobra.Command {
	d := diffFlags{}
	cmd := &cobra.Command{
		Use: "diff DEPLOYMENT | DIR DIR", Short: "Show what differs between two revisions of a deployment, field by field", Args: cobra.RangeArgs(1, 2),
		Long: "Compares the desired state of the clusters with the newest commit, or any two revisions: kept ones by their number (kedge history),\n" +
			"or branches, tags, commits and full refs such as refs/pull/12/head, rendered as the deployment is now. Nothing is changed. The values of\n" +
			"Secrets are hidden: only that they differ is shown.\n\n" +
			"With two folders it renders both on this machine, as kedge render does, and needs no server.",
		Example: "kedge diff web                                   # what the next sync would bring\n" +
			"kedge diff web --to refs/pull/12/head            # what a pull request would change\n" +
			"kedge diff web --from 7 --to 8 --exit-code\n" +
			"kedge diff overlays/stage overlays/prod          # two folders on this machine",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.diff(cmd, args, d) }
	f := cmd.Flags()
	f.StringVar(&d.from, "from", "", "older side (default: the desired state of the clusters)")
	f.StringVar(&d.to, "to", "", "newer side (default: the newest of what the deployment follows)")
	f.BoolVar(&d.exitCode, "exit-code", false, "exit with 1 when something differs")
	q := &d.local.request
	f.StringVar(&q.Namespace, "namespace", "default", "with folders: namespace of objects that name none")
	f.StringArrayVar(&q.Helm.ValuesFiles, "values-file", nil, "with folders: values of a chart, as kedge render takes them; may be repeated")
	f.StringVar(&q.Helm.ReleaseName, "helm-release", "", "with folders: name of the release of a chart (default \"release\")")
	pairsFlag(f, &q.Variables, "var", "with folders: variables, each replaces ${NAME} in the objects")
	d.add(cmd, output.TableFormat, output.JSON, output.YAML, output.JSONPath+"=")
	return cmd
}

func (a *app) diff(cmd *cobra.Command, args []string, d diffFlags) error {
	if err := d.parse(); err != nil {
		return err
	}
	var diff apiv1.Diff
	var err error
	if len(args) == 2 {
		if d.from != "" || d.to != "" {
			return &exitError{exitUsage, "two folders have no --from and --to", "kedge diff --help"}
		}
		diff, err = a.diffFolders(cmd.Context(), args[0], args[1], d.local)
	} else {
		diff, err = a.diffDeployment(cmd.Context(), args[0], d)
	}
	if err != nil {
		return err
	}
	err = a.printOne(d.outputFlags, diff, "deployment/"+args[0], func() error { return a.printDiff(diff) })
	return concludeDiff(diff, d.exitCode, err)
}

func (a *app) diffDeployment(ctx context.Context, name string, d diffFlags) (apiv1.Diff, error) {
	c, err := a.connect()
	if err != nil {
		return apiv1.Diff{}, err
	}
	query := url.Values{}
	for key, value := range map[string]string{"from": d.from, "to": d.to} {
		if value != "" {
			query.Set(key, value)
		}
	}
	path := c.In("deployments", name, "diff")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return client.Get[apiv1.Diff](ctx, c, path)
}

// concludeDiff chooses the exit code: a side that does not render is a failure, whatever else is known.
func concludeDiff(d apiv1.Diff, exitCode bool, err error) error {
	if err != nil {
		return err
	}
	differs := false
	for _, v := range d.Variants {
		if v.Problem != "" {
			return &exitError{exitUnhealthy, "a side does not render: " + printable(v.Problem), ""}
		}
		differs = differs || len(v.Objects) > 0
	}
	if differs && exitCode {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (a *app) printDiff(d apiv1.Diff) error {
	paint := a.painter()
	fmt.Fprintln(a.Out, paint(bold, "--- "+sideName(d.From)))
	fmt.Fprintln(a.Out, paint(bold, "+++ "+sideName(d.To)))
	var added, removed, changed, unchanged, rendered int
	for _, v := range d.Variants {
		if len(d.Variants) > 1 || v.Variant != "" {
			fmt.Fprintf(a.Out, "\nFor %s: %s\n", count(v.Count, "agent"), printable(agentNames(v)))
		}
		if v.Problem != "" {
			fmt.Fprintln(a.Out, paint(red, "! "+printable(v.Problem)))
			continue
		}
		rendered++
		for _, note := range v.Notes {
			fmt.Fprintln(a.Err, "Note:", printable(note))
		}
		for _, o := range v.Objects {
			a.printObject(o, paint)
		}
		added, removed, changed, unchanged = added+v.Added, removed+v.Removed, changed+v.Changed, unchanged+v.Unchanged
	}
	if d.More > 0 {
		fmt.Fprintf(a.Out, "\n%s left off.\n", count(d.More, "more variant"))
	}
	if rendered == 0 {
		return nil
	}
	if added+removed+changed == 0 {
		return a.say("Nothing differs in %s.", count(unchanged, "object"))
	}
	return a.say("\n%s added, %d changed, %d removed, %d unchanged.", count(added, "object"), changed, removed, unchanged)
}

func agentNames(v apiv1.VariantDiff) string {
	names := strings.Join(v.Agents, ", ")
	if more := v.Count - len(v.Agents); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return orDash(names)
}

func sideName(s apiv1.DiffSide) string {
	name := printable(s.Name)
	if s.Revision > 0 {
		name = fmt.Sprintf("revision %d", s.Revision)
	}
	if s.Commit == "" || strings.HasPrefix(s.Commit, s.Name) && s.Name != "" && s.Revision == 0 {
		return name
	}
	return fmt.Sprintf("%s (commit %s)", name, shortCommit(s.Commit))
}

var signs = map[string]struct {
	sign   string
	colour int
}{"added": {"+", green}, "removed": {"-", red}, "changed": {"~", yellow}}

func (a *app) printObject(o apiv1.ObjectDiff, paint func(int, string) string) {
	s := signs[o.Change]
	fmt.Fprintf(a.Out, "\n%s\n", paint(s.colour, fmt.Sprintf("%s %s", s.sign, printable(o.Object))))
	for _, f := range o.Fields {
		path := printable(f.Path)
		if f.Change != "added" {
			fmt.Fprintln(a.Out, paint(red, fmt.Sprintf("  - %s: %s", path, printable(f.Old))))
		}
		if f.Change != "removed" {
			fmt.Fprintln(a.Out, paint(green, fmt.Sprintf("  + %s: %s", path, printable(f.New))))
		}
	}
	if o.More > 0 {
		fmt.Fprintf(a.Out, "  and %s\n", count(o.More, "more field"))
	}
}

// The colours of differences.
const (
	bold   = 1
	red    = 31
	green  = 32
	yellow = 33
)

// painter colours text where that can be seen.
func (a *app) painter() func(code int, text string) string {
	if !a.colour() {
		return func(_ int, text string) string { return text }
	}
	return func(code int, text string) string { return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, text) }
}

// printable drops what a terminal would act on: the text is from a repository.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
