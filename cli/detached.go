package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) deployDetachedCommand() *cobra.Command {
	var deployment, agent string
	detached := detachedResource(&deployment, &agent)
	cmd := getCommand(a, "detached", detached)
	cmd.Short = "List detached targets"
	cmd.Flags().StringVar(&deployment, "deployment", "", "only of this deployment")
	cmd.Flags().StringVar(&agent, "agent", "", "only of the agent that has or had this name")
	return cmd
}

func detachedResource(deployment, agent *string) resource[apiv1.DetachedTarget] {
	name := func(v apiv1.DetachedTarget) string { return v.Target }
	return resource[apiv1.DetachedTarget]{
		kind: "target", use: "detached targets", changes: []string{"deployment", "desired", "agent"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.DetachedTarget, error) {
			query := url.Values{"limit": {"500"}}
			for key, value := range map[string]string{"deployment": *deployment, "agent": *agent} {
				if value != "" {
					query.Set(key, value)
				}
			}
			return client.List[apiv1.DetachedTarget](ctx, c, c.In("detached-targets"), query, 0)
		},
		key: name, name: name,
		header: []string{"DEPLOYMENT", "AGENT", "STATE", "AGE", "TARGET", "MESSAGE"},
		rows: func(v apiv1.DetachedTarget, now time.Time) [][]string {
			state := "Released"
			if v.Managed {
				state = "Releasing"
			}
			return [][]string{{v.Deployment, v.Agent, state, output.Age(v.DetachedAt, now), v.Target, cell(orDash(sentence(v.Reason)))}}
		},
	}
}

func (a *app) deployDismissCommand() *cobra.Command {
	var all bool
	var agent string
	cmd := &cobra.Command{
		Use: "dismiss NAME [TARGET] | NAME --agent AGENT | NAME --all", Short: "Remove detached targets from the list; their objects stay",
		Args:    cobra.RangeArgs(1, 2),
		Example: "kedge deploy detached\nkedge deploy dismiss web --agent prod-1\nkedge deploy dismiss web --all",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named := len(args) == 2
		if one := btoi(named) + btoi(agent != "") + btoi(all); one != 1 {
			return &exitError{exitUsage, "name one target, an agent with --agent, or --all", "kedge deploy detached --deployment " + args[0]}
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if named {
			if err := client.Do(cmd.Context(), c, http.MethodPost, c.In("deployments", args[0], "targets", args[1], "dismiss"), nil); err != nil {
				return err
			}
			return a.say("Target %s is dismissed.", args[1])
		}
		return a.dismiss(cmd.Context(), c, apiv1.DismissTargets{Deployment: args[0], Agent: agent})
	}
	cmd.Flags().BoolVar(&all, "all", false, "all of the deployment")
	cmd.Flags().StringVar(&agent, "agent", "", "those of the agent that has or had this name")
	return cmd
}

func (a *app) agentDismissCommand() *cobra.Command {
	cmd := a.verb("dismiss NAME", "Remove the detached targets of a deleted agent from the list; their objects stay", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			return a.dismiss(ctx, c, apiv1.DismissTargets{Agent: args[0]})
		})
	cmd.Example = "kedge deploy detached --agent prod-1\nkedge agent dismiss prod-1"
	return cmd
}

func (a *app) dismiss(ctx context.Context, c *client.Client, whose apiv1.DismissTargets) error {
	done, err := client.Send[apiv1.DismissedTargets](ctx, c, http.MethodPost, c.In("detached-targets", "dismiss"), whose)
	if client.Status(err) == http.StatusNotFound && whose.Deployment == "" {
		return failure(fmt.Sprintf("agent %q was not found, and no detached target names it", whose.Agent), "kedge deploy detached lists detached targets")
	}
	if err != nil {
		return err
	}
	if done.Kept > 0 {
		return a.say("%s dismissed; %s kept until the agent has released the objects.", count(done.Dismissed, "target"), count(done.Kept, "target"))
	}
	return a.say("%s dismissed.", count(done.Dismissed, "target"))
}
