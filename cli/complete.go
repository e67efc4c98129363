package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// completeNames lets the shell complete the names of what a command works on.
func completeNames[T any](a *app, res resource[T]) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
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
		var names []string
		for _, item := range items {
			names = append(names, res.name(item))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// complete gives every command that takes a name the names to choose from.
func (a *app) complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		var names cobra.CompletionFunc
		switch cmd.Name() {
		case "agent":
			names = completeNames(a, agentResource())
		case "env":
			names = completeNames(a, environmentResource())
		case "deploy", "sync", "rollback", "run", "status", "image", "diff":
			names = completeNames(a, deploymentResource())
		case "credential":
			names = completeNames(a, credentialResource())
		case "repo":
			names = completeNames(a, byURL(repositoryResource()))
		case "token":
			names = completeNames(a, tokenResource())
		case "person":
			names = completeNames(a, personResource())
		case "tenant":
			names = completeNames(a, tenantResource())
		default:
			continue
		}
		giveCompletion(cmd, names)
	}
}

// byURL names repositories as people know them.
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
