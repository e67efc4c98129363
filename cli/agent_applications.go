package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) agentApplicationsCommand() *cobra.Command {
	var out outputFlags
	cmd := a.verb("applications NAME", "List the Applications of Argo CD that an agent does not manage", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := out.parse(); err != nil {
				return err
			}
			list, err := client.Get[apiv1.AgentApplications](ctx, c, c.In("agents", args[0], "applications"))
			if err != nil {
				return err
			}
			return a.printOne(out, list, "agent/"+args[0], func() error { return a.printApplications(list, out) })
		})
	cmd.Long = "Lists the Applications in the namespace of Argo CD that Kedge does not manage for this agent. Kedge never changes them."
	out.add(cmd)
	return cmd
}

func (a *app) printApplications(l apiv1.AgentApplications, o outputFlags) error {
	rows := make([][]string, 0, len(l.Items))
	for _, v := range l.Items {
		rows = append(rows, []string{
			v.Name, v.Project, v.RepoURL, orDash(v.Path), orDash(v.Revision), orDash(v.Cluster), orDash(v.Namespace), orDash(v.Sync), orDash(v.Health),
		})
	}
	header := []string{"NAME", "PROJECT", "REPOSITORY", "PATH", "REVISION", "CLUSTER", "NAMESPACE", "SYNC", "HEALTH"}
	if err := a.table(o, header, rows...).Write(a.Out); err != nil || l.Total <= len(l.Items) {
		return err
	}
	_, err := fmt.Fprintf(a.Out, "%d of %d Applications are listed.\n", len(l.Items), l.Total)
	return err
}
