package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) envCommand() *cobra.Command {
	cmd := group("env", "Manage environments: the agents that deployments go to", a.envCreateCommand(), a.envSetCommand(), getCommand(a, "get", environmentResource()), a.grantCommand(),
		a.removeVerb("environment", "Deletes an environment that no deployment uses.", environmentResource().words(), environmentPath))
	cmd.Aliases = []string{"environment", "environments", "envs"}
	cmd.AddCommand(a.suspendVerbs("environment", environmentResource().words(), environmentPath)...)
	return cmd
}

func (a *app) envCreateCommand() *cobra.Command {
	var req apiv1.CreateEnvironment
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an environment of the agents named or selected",
		Long:    "An agent belongs to the environment when it is named, or when it has all the labels. The environment \"default\" has every agent.",
		Example: "kedge env create eu --match-labels region=eu\nkedge env create canary --agents prod-1,prod-2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			req.Name = args[0]
			made, err := client.Send[apiv1.Environment](cmd.Context(), c, http.MethodPost, c.In("environments"), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Environment %q created.\n", made.Name)
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&req.Agents, "agents", nil, "names of agents, a,b,…")
	cmd.Flags().StringToStringVar(&req.MatchLabels, "match-labels", nil, "labels of agents, key=value,…")
	return cmd
}
