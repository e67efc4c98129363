package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// names reads the names of a resource for the shell.
func names[T any](a *app, cmd *cobra.Command, res resource[T]) ([]string, cobra.ShellCompDirective) {
	c, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	items, err := res.list(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, item := range items {
		out = append(out, res.name(item))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeNames lets the shell complete the names of a resource: as many as the command takes, each once.
func completeNames[T any](a *app, res resource[T]) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.Contains(cmd.Use, "…") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, directive := names(a, cmd, res)
		return slices.DeleteFunc(found, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

// completeFirst completes the first argument only.
func completeFirst(names cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, args, word)
	}
}

// completeFlag lets the shell complete the value of a flag by the names of a resource.
func completeFlag[T any](a *app, res resource[T]) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(a, cmd, res)
	}
}

// complete gives every command that takes names, and every flag that takes one, the values to choose from.
func (a *app) complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		var names cobra.CompletionFunc
		switch cmd.Name() {
		case "agent":
			names = completeNames(a, agentResource())
		case "env":
			names = completeNames(a, environmentResource())
		case "deploy", "sync", "rollback", "run", "status", "image", "diff", "tree", "history", "wait", "logs", "events":
			names = completeNames(a, deploymentResource())
		case "exec":
			names = completeFirst(completeNames(a, deploymentResource()))
		case "credential":
			names = completeNames(a, credentialResource())
		case "repo":
			names = completeNames(a, byURL(repositoryResource()))
		case "token":
			names = completeNames(a, tokenResource())
		case "person":
			names = completeNames(a, personResource())
		case "engine-upgrade":
			names = completeNames(a, engineUpgradeResource())
		case "access":
			names = completeNames(a, accessRuleResource())
		case "tenant":
			names = completeNames(a, tenantResource())
		default:
			continue
		}
		giveCompletion(cmd, names)
	}
	a.completeFlags(root, map[string]cobra.CompletionFunc{
		"env": completeFlag(a, environmentResource()), "envs": completeFlag(a, environmentResource()), "agent": completeFlag(a, agentResource()), "agents": completeFlag(a, agentResource()),
		"deployment": completeFlag(a, deploymentResource()), "repo": completeFlag(a, byURL(repositoryResource())), "config-repo": completeFlag(a, byURL(repositoryResource())),
		"credential": completeFlag(a, credentialResource()), "tenant": completeFlag(a, tenantResource()), "context": a.completeContexts,
		"sync":        fixed("Pending", "Syncing", "Synced", "OutOfSync", "Failed", "Deleted", "Rewound", "Detached"),
		"health":      fixed("Current", "InProgress", "Failed", "Terminating", "NotFound", "Unknown", "Stale"),
		"drift":       fixed("correct", "report", "ignore"),
		"propagation": fixed("Background", "Foreground", "Orphan"),
		"connected":   fixed("true", "false"),
		"state":       fixed("Waiting", "InProgress", "Completed", "Failed"),
	})
}

func fixed(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completeFlags registers completions for the flags of a command and of those below it. A completion that the command
// has registered itself stays.
func (a *app) completeFlags(cmd *cobra.Command, values map[string]cobra.CompletionFunc) {
	for name, complete := range values {
		flags := cmd.Flags()
		if cmd.PersistentFlags().Lookup(name) != nil {
			flags = cmd.PersistentFlags()
		}
		if flag := flags.Lookup(name); flag == nil || flag.Value.Type() == "bool" {
			continue
		}
		if _, taken := cmd.GetFlagCompletionFunc(name); !taken {
			must(cmd.RegisterFlagCompletionFunc(name, complete))
		}
	}
	for _, sub := range cmd.Commands() {
		a.completeFlags(sub, values)
	}
}

// byURL names repositories by their URL.
func byURL(res resource[apiv1.Repository]) resource[apiv1.Repository] {
	res.name = func(v apiv1.Repository) string { return v.URL }
	return res
}

func giveCompletion(cmd *cobra.Command, names cobra.CompletionFunc) {
	if cmd.ValidArgsFunction == nil && cmd.RunE != nil && cmd.Name() != "create" && cmd.Name() != "enroll" && cmd.Name() != "add" {
		cmd.ValidArgsFunction = names
	}
	for _, sub := range cmd.Commands() {
		giveCompletion(sub, names)
	}
}
