package cli

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func environmentPath(c *client.Client, name string) string { return c.In("environments", name) }

func (a *app) envSetCommand() *cobra.Command {
	var req apiv1.UpdateEnvironment
	var confirm confirmation
	var push pushFlags
	var cmd *cobra.Command
	cmd = a.verb("set NAME", "Change which agents belong to an environment", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if !cmd.Flags().Changed("agents") {
			req.Agents = nil
		} else if req.Agents == nil {
			req.Agents = []string{}
		}
		var err error
		if req.Push, err = push.request(); err != nil {
			return err
		}
		if req.Push == nil {
			err = confirm.askLeaving(ctx, a, c, args[0], "kedge env set "+args[0]+" …")
		}
		if err != nil {
			return err
		}
		v, err := client.Send[apiv1.Environment](ctx, c, http.MethodPatch, environmentPath(c, args[0]), req)
		if err != nil {
			return err
		}
		if v.Push != nil {
			return a.say("Environment %q is the cluster at %s.", v.Name, v.Push.APIURL)
		}
		return a.say("Environment %q selects %s: now %s.", v.Name, selects(v), orNone(v.Selected))
	})
	push.flags(cmd.Flags())
	cmd.Long = "The given values replace the current ones. Targets on agents that leave the environment are detached: their objects stay in the cluster,\n" +
		"unless a deployment has the policy pruneOnDetach. The command asks before that."
	confirm.flags(cmd.Flags())
	cmd.Example = "kedge env set canary --agents prod-1,prod-7\nkedge env set eu --match-labels region=eu,tier=prod"
	cmd.Flags().StringSliceVar(&req.Agents, "agents", nil, "names of agents, a,b,…; empty names none")
	pairsFlag(cmd.Flags(), &req.MatchLabels, "match-labels", "labels of agents; empty asks for none")
	return cmd
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "no agent"
	}
	return strings.Join(names, ", ")
}

func (a *app) grantCommand() *cobra.Command {
	var limits apiv1.Limits
	var account string
	create := a.verb("create ENVIRONMENT TENANT", "Allow another tenant to deploy to an environment, within limits", 2,
		func(ctx context.Context, c *client.Client, args []string) error {
			v, err := client.Send[apiv1.Grant](ctx, c, http.MethodPost, c.In("grants"), apiv1.CreateGrant{
				Environment: args[0], Grantee: args[1], Limits: limits, ServiceAccount: account,
			})
			if err != nil {
				return err
			}
			return a.say("Tenant %q may deploy to %s/%s (grant %s).", args[1], c.Tenant(), args[0], v.ID)
		})
	create.Example = "kedge env grant create eu shop --namespaces shop,shop-staging --kinds Deployment.apps,Service,ConfigMap"
	create.Flags().StringSliceVar(&limits.Namespaces, "namespaces", nil, "only in these namespaces (default: all)")
	create.Flags().StringSliceVar(&limits.Kinds, "kinds", nil, "only these kinds, such as ConfigMap, Deployment.apps or *.example.com (default: all)")
	create.Flags().StringVar(&account, "service-account", "", "NAMESPACE/NAME that deployments by this grant are applied as (default: the one of the deployment)")
	remove := a.verb("delete ID", "Delete a grant; deployed objects stay", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.In("grants", args[0]), nil); err != nil {
			return err
		}
		return a.say("Grant %s deleted. Objects that were deployed by it stay.", args[0])
	})
	remove.ValidArgsFunction = completeNames(a, grantResource())
	return group("grant", "Manage grants: other tenants that may deploy to an environment", create, remove, getCommand(a, "get", grantResource()))
}

func grantResource() resource[apiv1.Grant] {
	id := func(v apiv1.Grant) string { return v.ID }
	return resource[apiv1.Grant]{
		kind: "grant", use: "grants", short: "List grants given and received", changes: []string{"environment", "tenant"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Grant, error) {
			return client.List[apiv1.Grant](ctx, c, c.In("grants"), nil, 0)
		},
		key: id, name: id, header: []string{"ID", "DIRECTION", "ENVIRONMENT", "TENANT", "NAMESPACES", "KINDS", "SERVICE ACCOUNT", "AGE"},
		rows: func(v apiv1.Grant, now time.Time) [][]string {
			return [][]string{{v.ID, v.Direction, v.Environment, v.Grantee, cell(orAll(v.Limits.Namespaces)), cell(orAll(v.Limits.Kinds)), orDash(v.ServiceAccount), output.Age(v.CreatedAt, now)}}
		},
	}
}

func orAll(names []string) string {
	if len(names) == 0 {
		return "all"
	}
	return strings.Join(names, ",")
}

// agentLabelCommand takes labels as kubectl does: key=value sets, key- removes.
func (a *app) agentLabelCommand() *cobra.Command {
	var confirm confirmation
	cmd := &cobra.Command{
		Use: "label NAME KEY=VALUE|KEY-…", Short: "Change the labels of an agent; environments select by them", Args: cobra.MinimumNArgs(2),
		Long: "KEY=VALUE sets a label, KEY- removes it. If the agent leaves an environment, its targets there are detached: their objects stay in the\n" +
			"cluster, unless a deployment has the policy pruneOnDetach. The command asks before that.",
		Example: "kedge agent label prod-7 region=eu tier-",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		v, err := client.Get[apiv1.Agent](cmd.Context(), c, c.In("agents", args[0]))
		if err != nil {
			return err
		}
		labels := map[string]string{}
		for key, value := range v.Labels {
			labels[key] = value
		}
		for _, change := range args[1:] {
			if key, value, ok := strings.Cut(change, "="); ok {
				labels[key] = value
			} else if key, ok := strings.CutSuffix(change, "-"); ok {
				delete(labels, key)
			} else {
				return &exitError{exitUsage, change + " neither sets nor removes a label", "KEY=VALUE sets one, KEY- removes it"}
			}
		}
		environments, err := leaves(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		for _, env := range environments {
			if err := confirm.askLeaving(cmd.Context(), a, c, env, "kedge agent label "+strings.Join(args, " ")); err != nil {
				return err
			}
		}
		if err := client.Do(cmd.Context(), c, http.MethodPatch, c.In("agents", args[0]), apiv1.UpdateAgent{Labels: labels}); err != nil {
			return err
		}
		return a.say("Agent %q labelled.", args[0])
	}
	confirm.flags(cmd.Flags())
	return cmd
}
