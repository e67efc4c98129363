package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) deployPrunesCommand() *cobra.Command {
	var agent string
	cmd := getOf(a, "prunes NAME", "List held deletions: objects that have left the source", deploymentResource().words(),
		func(name string) resource[apiv1.HeldPrune] { return heldPruneResource(name, agent) })
	cmd.Flags().StringVar(&agent, "agent", "", "only on this agent")
	return cmd
}

func heldPruneResource(deployment, agent string) resource[apiv1.HeldPrune] {
	id := func(v apiv1.HeldPrune) string { return v.Agent + " " + v.Target + " " + v.Object }
	query := url.Values{"limit": {"500"}}
	if agent != "" {
		query.Set("agent", agent)
	}
	return resource[apiv1.HeldPrune]{
		use: "prunes", changes: []string{"deployment", "desired", "status"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.HeldPrune, error) {
			return client.List[apiv1.HeldPrune](ctx, c, c.In("deployments", deployment, "held-prunes"), query, 0)
		},
		key: id, name: func(v apiv1.HeldPrune) string { return v.Object }, header: []string{"AGENT", "OBJECT", "STATE", "COMMIT", "REASON", "MESSAGE"},
		rows: func(v apiv1.HeldPrune, _ time.Time) [][]string {
			state := "Held"
			switch {
			case v.Confirmed:
				state = "Confirmed"
			case !v.Current:
				state = "Pending"
			}
			return [][]string{{v.Agent, v.Object, state, shortCommit(v.Commit), orDash(v.Reason), cell(orDash(sentence(v.Message)))}}
		},
	}
}

func (a *app) deployConfirmPruneCommand() *cobra.Command {
	var req apiv1.ConfirmPrune
	cmd := &cobra.Command{
		Use: "confirm-prune NAME OBJECT… | --all --count N", Short: "Confirm held deletions", Args: cobra.MinimumNArgs(1),
		Long: "When many objects leave the source, or objects of a kind that holds data, their deletion is held until you confirm it. A confirmation\n" +
			"is for the revision that is deployed now: another commit, or an edit, drops it.",
		Example: "kedge deploy prunes web\nkedge deploy confirm-prune web \"ConfigMap shop/old\" \"Namespace legacy\"\nkedge deploy confirm-prune web --all --count 12 --agent prod-1",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Objects = args[1:]
		switch {
		case req.All && len(req.Objects) > 0:
			return &exitError{exitUsage, "name objects or confirm --all, not both", "kedge deploy prunes " + args[0]}
		case !req.All && len(req.Objects) == 0:
			return &exitError{exitUsage, "name the objects, or confirm --all with --count", "kedge deploy prunes " + args[0]}
		case req.All && req.Count <= 0:
			return &exitError{exitUsage, "--all needs --count, the number of held deletions that you have seen", "kedge deploy prunes " + args[0]}
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := client.Send[apiv1.ConfirmedPrune](cmd.Context(), c, http.MethodPost, c.In("deployments", args[0], "confirm-prune"), req)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "To follow it: kedge status %s --watch\n", args[0])
		return a.say("Confirmed %s on %s.", count(done.Deletions, "deletion"), count(done.Targets, "target"))
	}
	f := cmd.Flags()
	f.BoolVar(&req.All, "all", false, "everything that is held now; needs --count")
	f.IntVar(&req.Count, "count", 0, "with --all: how many deletions are held, an object on two clusters counted twice, as kedge deploy prunes lists them")
	f.StringVar(&req.Agent, "agent", "", "only on this agent (default: on all that hold them)")
	return cmd
}
