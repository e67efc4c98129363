package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// maxTreeTargets bounds how many targets a tree reads the objects of, unless --agent names one.
const maxTreeTargets = 50

func (a *app) treeCommand() *cobra.Command {
	var out outputFlags
	var agent string
	cmd := &cobra.Command{
		Use: "tree DEPLOYMENT…", Short: "Show a deployment as a tree of its targets and their objects", Args: cobra.MinimumNArgs(1),
		Example: "kedge tree web\nkedge tree web --agent prod-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.parse(); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return eachName(args, deploymentResource().words(), func(name string) error { return a.tree(cmd.Context(), c, name, agent, out) })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "only the target on this agent")
	out.add(cmd)
	return cmd
}

func (a *app) tree(ctx context.Context, c *client.Client, name, agent string, out outputFlags) error {
	d, err := c.Deployment(ctx, name)
	if err != nil {
		return err
	}
	if err := a.readObjects(ctx, c, &d, agent); err != nil {
		return err
	}
	return a.printOne(out, d, "deployment/"+d.Name, func() error {
		return a.table(out, []string{"NAME", "SYNC", "HEALTH", "REASON", "MESSAGE"}, a.treeRows(d)...).Write(a.Out)
	})
}

// readObjects completes the targets by their objects, which the server leaves out where there are many targets.
func (a *app) readObjects(ctx context.Context, c *client.Client, d *apiv1.Deployment, agent string) error {
	var targets []apiv1.Target
	for _, t := range d.Targets {
		if agent == "" || t.Agent == agent {
			targets = append(targets, t)
		}
	}
	if agent != "" && len(targets) == 0 {
		return failure(fmt.Sprintf("deployment %q has no target on agent %q", d.Name, agent), "kedge status "+d.Name)
	}
	d.Targets = targets
	if len(targets) > maxTreeTargets {
		fmt.Fprintf(a.Err, "Objects are shown for at most %d targets: name one with --agent.\n", maxTreeTargets)
		return nil
	}
	for i, t := range targets {
		if len(t.Objects) > 0 || !t.DetachedAt.IsZero() {
			continue
		}
		one, err := client.Get[apiv1.Target](ctx, c, c.In("deployments", d.Name, "targets", t.Agent))
		if err != nil {
			return err
		}
		targets[i].Objects = one.Objects
	}
	return nil
}

func (a *app) treeRows(d apiv1.Deployment) [][]string {
	now := a.Now()
	rows := [][]string{{"deployment/" + d.Name, deploymentSync(d), deploymentHealth(d, now), orDash(d.Reason), cell(sentence(d.Message))}}
	for i, t := range d.Targets {
		branch, stem := "├─", "│ "
		if i == len(d.Targets)-1 {
			branch, stem = "└─", "  "
		}
		rows = append(rows, []string{branch + "agent/" + t.Agent, targetSync(t), targetHealth(t, now), orDash(t.Reason), cell(sentence(t.Message))})
		for j, o := range t.Objects {
			leaf := "├─"
			if j == len(t.Objects)-1 {
				leaf = "└─"
			}
			rows = append(rows, append([]string{stem + leaf + objectName(o)}, objectRow(t, o)[2:]...))
		}
	}
	return rows
}
