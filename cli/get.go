package cli

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
)

// resource is something that can be listed, read and watched.
type resource[T any] struct {
	kind    string // singular, as in -o name
	use     string // plural
	short   string
	aliases []string
	changes []string   // kinds of changes after which it has to be read again
	query   url.Values // filters of the listing that flags add to
	flags   func(*pflag.FlagSet)
	list    func(context.Context, *client.Client) ([]T, error)
	get     func(context.Context, *client.Client, string) (T, error) // nil when it has no names
	key     func(T) string                                           // tells items apart
	name    func(T) string
	header  []string // a title that begins with "+" is of a column that -o wide shows
	rows    func(T, time.Time) [][]string
	// warnings are printed below a table; may be nil.
	warnings func(T) []string
	bounded  bool // items leave the listing because newer ones come
	labelled bool // has labels that a selector can match
	global   bool // belongs to no tenant
}

// words are all names of the resource on the command line.
func (r resource[T]) words() []string {
	return slices.Concat([]string{r.use, r.kind}, r.aliases)
}

// qualified is KIND/NAME, as -o name prints it. Something that is no resource of its own has its name alone.
func (r resource[T]) qualified(item T) string {
	if r.kind == "" {
		return r.name(item)
	}
	return r.kind + "/" + r.name(item)
}

// bare is a name without the kind before it, as -o name prints it.
func (r resource[T]) bare(name string) string { return bareName(name, r.words()) }

func bareName(name string, words []string) string {
	if kind, rest, ok := strings.Cut(name, "/"); ok && rest != "" && slices.Contains(words, kind) {
		return rest
	}
	return name
}

func (a *app) getCommand() *cobra.Command {
	cmd := group("get", "List resources, or show some of them by name",
		getCommand(a, "", tenantResource()), getCommand(a, "", memberResource()), getCommand(a, "", personResource()), getCommand(a, "", tokenResource()), getCommand(a, "", grantResource()), getCommand(a, "", accessRuleResource()),
		getCommand(a, "", credentialResource()), getCommand(a, "", operationResource()),
		getCommand(a, "", agentResource()), getCommand(a, "", deploymentResource()), getCommand(a, "", environmentResource()),
		getCommand(a, "", eventResource(a.Now)), getCommand(a, "", repositoryResource()), getCommand(a, "", gitLabProjectResource()),
		getCommand(a, "", engineUpgradeResource()), a.getObjectsCommand())
	cmd.Aliases = listAliases
	cmd.Example = "kedge get deployments -l team=web -o wide\nkedge get deployment/web -o yaml\nkedge get agents -A"
	return cmd
}

// listAliases are other words for get.
var listAliases = []string{"list", "ls"}

// getCommand makes the command that lists res. use replaces the resource's own name.
func getCommand[T any](a *app, use string, res resource[T]) *cobra.Command {
	g := &getter[T]{app: a, res: res}
	cmd := &cobra.Command{Use: res.use, Aliases: slices.Concat([]string{res.kind}, res.aliases), Short: res.short, Args: cobra.NoArgs}
	if use != "" {
		cmd.Use, cmd.Aliases = use, nil
		if use == "get" {
			cmd.Aliases = listAliases
		}
	}
	if res.get != nil {
		cmd.Use += " [NAME…]"
		cmd.Args = cobra.ArbitraryArgs
		cmd.ValidArgsFunction = completeNames(a, res)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return g.run(cmd.Context(), args) }
	g.flags(cmd)
	if res.labelled {
		selectorFlag(cmd.Flags(), res.query)
	}
	if !res.global {
		cmd.Flags().BoolVarP(&g.allTenants, "all-tenants", "A", false, "list the resources of all tenants that you may read")
	}
	if res.flags != nil {
		res.flags(cmd.Flags())
	}
	return cmd
}

// selectorFlag filters a listing by labels.
func selectorFlag(f *pflag.FlagSet, query url.Values) {
	f.FuncP("selector", "l", "label selector, such as -l 'team=web,tier in (db,cache),!legacy'", func(value string) error {
		if before := query.Get("labelSelector"); before != "" {
			value = before + "," + value
		}
		query.Set("labelSelector", value)
		return nil
	})
}

// getOf makes the command that lists what belongs to the one thing that its argument names.
func getOf[T any](a *app, use, short string, words []string, of func(name string) resource[T]) *cobra.Command {
	g := &getter[T]{app: a}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	if strings.HasPrefix(use, "get ") {
		cmd.Aliases = listAliases
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g.res = of(bareName(args[0], words))
		return g.run(cmd.Context(), nil)
	}
	g.flags(cmd)
	return cmd
}

func (g *getter[T]) flags(cmd *cobra.Command) {
	g.outputFlags.add(cmd)
	cmd.Flags().BoolVarP(&g.watch, "watch", "w", false, "after the listing, print every change")
}
