package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// noun is a type of resource that commands such as describe take by its name.
type noun struct {
	kind  string
	words []string
	// names lists what there is, for completion.
	names    func(*cobra.Command) ([]string, cobra.ShellCompDirective)
	describe func(ctx context.Context, c *client.Client, name string, w *describer) error
}

func nounOf[T any](a *app, res resource[T], describe func(context.Context, *client.Client, T, *describer) error) noun {
	return noun{
		kind: res.kind, words: res.words(),
		names: func(cmd *cobra.Command) ([]string, cobra.ShellCompDirective) { return names(a, cmd, res) },
		describe: func(ctx context.Context, c *client.Client, name string, w *describer) error {
			item, err := res.get(ctx, c, name)
			if err != nil {
				return err
			}
			return describe(ctx, c, item, w)
		},
	}
}

// nouns are the types that describe knows.
func (a *app) nouns() []noun {
	return []noun{
		nounOf(a, deploymentResource(), a.describeDeployment), nounOf(a, agentResource(), a.describeAgent),
		nounOf(a, environmentResource(), a.describeEnvironment), nounOf(a, byURL(repositoryResource()), a.describeRepository),
		nounOf(a, credentialResource(), a.describeCredential), nounOf(a, tenantResource(), a.describeTenant),
		nounOf(a, operationResource(), a.describeOperation), nounOf(a, engineUpgradeResource(), a.describeEngineUpgrade),
		nounOf(a, accessRuleResource(), a.describeAccessRule),
	}
}

func (a *app) describeCommand() *cobra.Command {
	nouns := a.nouns()
	cmd := &cobra.Command{
		Use: "describe TYPE NAME… | TYPE/NAME…", Short: "Show the details of resources: spec, conditions, targets and events", Args: cobra.MinimumNArgs(1),
		Example:           "kedge describe deployment web\nkedge describe agent/prod env/eu",
		ValidArgsFunction: completeTyped(nouns),
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := typedNames(cmd, args, nouns)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.describe(cmd.Context(), c, refs)
		},
	}
	cmd.AddCommand(a.describeObjectCommand())
	return cmd
}

func (a *app) describe(ctx context.Context, c *client.Client, refs []typedName) error {
	var failures errorList
	printed := 0
	for _, ref := range refs {
		w := newDescriber(a.Out)
		if printed > 0 {
			fmt.Fprintln(w)
		}
		if err := ref.noun.describe(ctx, c, ref.name, w); err != nil {
			failures = append(failures, err)
			continue
		}
		printed++
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return failures.orNil()
}

// typedName is a resource on the command line.
type typedName struct {
	noun noun
	name string
}

// typedNames reads TYPE NAME… or TYPE/NAME….
func typedNames(cmd *cobra.Command, args []string, nouns []noun) ([]typedName, error) {
	help := cmd.CommandPath() + " --help"
	find := func(word string) (noun, bool) {
		i := slices.IndexFunc(nouns, func(n noun) bool { return slices.Contains(n.words, strings.ToLower(word)) })
		if i < 0 {
			return noun{}, false
		}
		return nouns[i], true
	}
	if of, ok := find(args[0]); ok {
		if len(args) == 1 {
			return nil, &exitError{exitUsage, fmt.Sprintf("%s %s needs NAME", cmd.CommandPath(), args[0]), help}
		}
		var out []typedName
		for _, name := range args[1:] {
			out = append(out, typedName{of, bareName(name, of.words)})
		}
		return out, nil
	}
	var out []typedName
	for _, arg := range args {
		word, name, ok := strings.Cut(arg, "/")
		of, known := find(word)
		if !known || !ok || name == "" {
			var kinds []string
			for _, n := range nouns {
				kinds = append(kinds, n.kind)
			}
			return nil, &exitError{exitUsage, fmt.Sprintf("%q does not name a type: use TYPE NAME or TYPE/NAME with one of %s", arg, strings.Join(kinds, ", ")), help}
		}
		out = append(out, typedName{of, name})
	}
	return out, nil
}

// completeTyped completes a type and then its names.
func completeTyped(nouns []noun) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			var kinds []string
			for _, n := range nouns {
				kinds = append(kinds, n.kind)
			}
			return kinds, cobra.ShellCompDirectiveNoFileComp
		}
		for _, n := range nouns {
			if slices.Contains(n.words, args[0]) {
				return n.names(cmd)
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// describer writes names and values as kubectl describe does.
type describer struct{ *tabwriter.Writer }

func newDescriber(w io.Writer) *describer { return &describer{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

// field writes one value; level indents it.
func (d *describer) field(level int, name, value string) {
	fmt.Fprintf(d, "%s%s:\t%s\n", strings.Repeat("  ", level), name, orNothing(strings.Join(strings.Fields(value), " ")))
}

// optional writes a value unless it is empty.
func (d *describer) optional(level int, name, value string) {
	if value != "" {
		d.field(level, name, value)
	}
}

// labels writes one label per line.
func (d *describer) labels(name string, labels map[string]string) {
	lines := strings.Split(labelText(labels), ",")
	d.field(0, name, lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(d, "\t%s\n", line)
	}
}

// section writes a title.
func (d *describer) section(name string) { fmt.Fprintf(d, "%s:\n", name) }

// table writes a table below a title, or <none>.
func (d *describer) table(name string, header []string, rows [][]string) {
	if len(rows) == 0 {
		d.field(0, name, "")
		return
	}
	d.section(name)
	rules := make([]string, len(header))
	for i, title := range header {
		rules[i] = strings.Repeat("-", len(title))
	}
	for _, row := range append([][]string{header, rules}, rows...) {
		fmt.Fprintf(d, "  %s\n", strings.Join(row, "\t"))
	}
}

// orNothing is what kubectl describe prints for an empty value.
func orNothing(value string) string {
	if value == "" {
		return "<none>"
	}
	return value
}

// describeEvents writes the newest events of a deployment or an agent.
func (a *app) describeEvents(ctx context.Context, c *client.Client, w *describer, query url.Values) error {
	query.Set("limit", "20")
	events, err := c.Events(ctx, query)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{e.Type, e.Reason, output.Age(e.At, a.Now()), orDash(eventSource(e)), eventMessage(e)})
	}
	w.table("Events", []string{"Type", "Reason", "Age", "From", "Message"}, rows)
	return nil
}

// eventSource is what an event is about, beside the resource that is described.
func eventSource(e apiv1.Event) string {
	var parts []string
	if e.Agent != "" {
		parts = append(parts, "agent/"+e.Agent)
	}
	if e.Object != "" {
		parts = append(parts, e.Object)
	}
	return strings.Join(parts, ", ")
}
