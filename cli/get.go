package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// resource is something that can be listed, read and watched.
type resource[T any] struct {
	use, short string
	aliases    []string
	kinds      []string // of changes after which it has to be read again
	flags      func(*pflag.FlagSet)
	list       func(context.Context, *client.Client) ([]T, error)
	get        func(context.Context, *client.Client, string) (T, error) // nil when it has no names
	key        func(T) string                                           // tells items apart
	name       func(T) string
	header     []string
	rows       func(T, time.Time) [][]string
	warnings   func(T) []string // may be nil
	bounded    bool             // items leave the listing because newer ones come
}

var formats = []string{"table", "json", "yaml", "name"}

func (a *app) getCommand() *cobra.Command {
	return group("get", "List agents, deployments, environments, events, repositories and the rest",
		getCommand(a, "", tenantResource()), getCommand(a, "", memberResource()), getCommand(a, "", personResource()), getCommand(a, "", tokenResource()), getCommand(a, "", grantResource()),
		getCommand(a, "", credentialResource()), getCommand(a, "", operationResource()),
		getCommand(a, "", agentResource()), getCommand(a, "", deploymentResource()), getCommand(a, "", environmentResource()),
		getCommand(a, "", eventResource(a.Now)), getCommand(a, "", repositoryResource()))
}

// getCommand makes the command that lists res; use goes before the resource's own name.
func getCommand[T any](a *app, use string, res resource[T]) *cobra.Command {
	g := &getter[T]{app: a, res: res}
	cmd := &cobra.Command{Use: res.use, Aliases: res.aliases, Short: res.short, Args: cobra.NoArgs}
	if use != "" {
		cmd.Use, cmd.Aliases = use, nil
	}
	if res.get != nil {
		cmd.Use += " [NAME]"
		cmd.Args = cobra.MaximumNArgs(1)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return g.run(cmd.Context(), args) }
	g.flags(cmd)
	if res.flags != nil {
		res.flags(cmd.Flags())
	}
	if res.get != nil {
		cmd.ValidArgsFunction = completeNames(a, res)
	}
	return cmd
}

func (g *getter[T]) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&g.format, "output", "o", "table", "how to print: "+strings.Join(formats, ", "))
	cmd.Flags().BoolVarP(&g.watch, "watch", "w", false, "go on and print what changes")
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
}

// getOf makes the command that lists what belongs to the one thing that its argument names.
func getOf[T any](a *app, use, short string, of func(name string) resource[T]) *cobra.Command {
	g := &getter[T]{app: a}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g.res = of(args[0])
		return g.run(cmd.Context(), nil)
	}
	g.flags(cmd)
	return cmd
}

type getter[T any] struct {
	app    *app
	res    resource[T]
	format string
	watch  bool
	seen   map[string]string // what was printed of each item, while watching
	widths []int             // of the columns so far, so that later rows stand below them
}

func (g *getter[T]) run(ctx context.Context, args []string) error {
	if !slices.Contains(formats, g.format) {
		return &exitError{exitUsage, fmt.Sprintf("-o %s is not known", g.format), "use one of " + strings.Join(formats, ", ")}
	}
	c, err := g.app.connect()
	if err != nil {
		return err
	}
	if g.watch {
		return g.follow(ctx, c, args)
	}
	items, err := g.read(ctx, c, args)
	if err != nil {
		return err
	}
	if len(args) > 0 && g.format != "table" && g.format != "name" {
		return g.encode(items[0])
	}
	return g.print(items)
}

func (g *getter[T]) read(ctx context.Context, c *client.Client, args []string) ([]T, error) {
	if len(args) == 0 {
		return g.res.list(ctx, c)
	}
	one, err := g.res.get(ctx, c, args[0])
	return []T{one}, err
}

func (g *getter[T]) print(items []T) error {
	switch g.format {
	case "name":
		for _, item := range items {
			fmt.Fprintln(g.app.Out, g.res.name(item))
		}
		return nil
	case "table":
		if len(items) == 0 {
			fmt.Fprintf(g.app.Err, "No %s found.\n", g.res.use)
			return nil
		}
		return g.table(items, g.res.header, g.app.Now())
	default:
		return g.encode(apiv1.List[T]{Items: items})
	}
}

func (g *getter[T]) table(items []T, header []string, now time.Time) error {
	t := table{header: header, colour: g.app.colour(), least: g.widths}
	var warnings []string
	for _, item := range items {
		t.rows = append(t.rows, g.res.rows(item, now)...)
		if g.res.warnings != nil {
			warnings = append(warnings, g.res.warnings(item)...)
		}
	}
	g.widths = t.widths()
	if err := t.write(g.app.Out); err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(g.app.Err, "Warning:", w)
	}
	return nil
}

// encode prints a value as JSON or YAML.
func (g *getter[T]) encode(v any) error { return g.app.encode(v, g.format) }

func (a *app) encode(v any, format string) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	text := out.Bytes()
	if format == "yaml" {
		converted, err := yaml.JSONToYAML(text)
		if err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		text = converted
	}
	_, err := a.Out.Write(text)
	return err
}

// follow prints everything once and then each item that has changed.
func (g *getter[T]) follow(ctx context.Context, c *client.Client, args []string) error {
	start := g.app.Now() // ages alone are no change
	relevant := func(change apiv1.Change) bool { return slices.Contains(g.res.kinds, change.Kind) }
	return g.app.follow(ctx, c, relevant, func(ctx context.Context) (step, error) {
		items, err := g.read(ctx, c, args)
		if err != nil {
			return step{}, err
		}
		return step{}, g.printChanged(items, start)
	})
}

func (g *getter[T]) printChanged(items []T, start time.Time) error {
	first := g.seen == nil
	before := g.seen
	g.seen = map[string]string{}
	var changed []T
	for _, item := range items {
		key, text := g.res.key(item), fmt.Sprint(g.res.rows(item, start))
		if g.seen[key] = text; before[key] != text {
			changed = append(changed, item)
		}
		delete(before, key)
	}
	if err := g.printEach(changed, first); err != nil {
		return err
	}
	if g.format != "table" || g.res.bounded {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		fmt.Fprintf(g.app.Out, "%s   Gone\n", key)
	}
	return nil
}

func (g *getter[T]) printEach(items []T, first bool) error {
	switch g.format {
	case "table":
		header := make([]string, len(g.res.header))
		if first {
			header = g.res.header
		}
		return g.table(items, header, g.app.Now())
	case "name":
		return g.print(items)
	}
	for _, item := range items {
		if g.format == "yaml" {
			fmt.Fprintln(g.app.Out, "---")
		}
		if err := g.encode(item); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) colour() bool { return isTerminal(a.Out) && a.Env("NO_COLOR") == "" }
