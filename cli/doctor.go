package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong: login, versions, agents, repositories, deployments; and say what to do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.examine(cmd.Context(), c)
		},
	}
}

// ailment is something that is wrong, and what to do about it.
type ailment struct{ what, next string }

// examination looks at one part of what a user has. good is what to say when nothing is wrong with it.
type examination struct {
	part string
	look func(context.Context, *client.Client) (good string, bad []ailment, err error)
}

func (a *app) examine(ctx context.Context, c *client.Client) error {
	found := 0
	for _, e := range []examination{
		{"login", a.examineLogin}, {"agents", a.examineAgents}, {"repositories", examineRepositories}, {"deployments", a.examineDeployments},
	} {
		good, bad, err := e.look(ctx, c)
		if err != nil {
			return err
		}
		if len(bad) == 0 {
			fmt.Fprintf(a.Out, "ok       %-13s %s\n", e.part, good)
		}
		for _, b := range bad {
			fmt.Fprintf(a.Out, "problem  %-13s %s\n                       next: %s\n", e.part, b.what, b.next)
		}
		found += len(bad)
	}
	if found > 0 {
		return &exitError{code: exitFailed, text: "found " + count(found, "problem")}
	}
	return nil
}

func (a *app) examineLogin(ctx context.Context, c *client.Client) (string, []ailment, error) {
	who, err := client.Get[apiv1.Whoami](ctx, c, c.Top("whoami"))
	if err != nil {
		return "", nil, err
	}
	if who.ServerVersion != a.Version {
		return "", []ailment{{fmt.Sprintf("this program is version %s, the server %s", a.Version, who.ServerVersion), "use the kedge of the server's version"}}, nil
	}
	return fmt.Sprintf("%s (%s), version %s", who.Name, who.Role, a.Version), nil, nil
}

func (a *app) examineAgents(ctx context.Context, c *client.Client) (string, []ailment, error) {
	agents, err := agentResource().list(ctx, c)
	var bad []ailment
	for _, v := range agents {
		switch {
		case v.Connected:
		case v.LastSeenAt.IsZero():
			bad = append(bad, ailment{v.Name + " has never connected", "kubectl -n kedge-agent-" + v.Name + " logs deployment/kedge-agent"})
		default:
			bad = append(bad, ailment{v.Name + " is " + stale(v.LastSeenAt, a.Now()), "kubectl -n kedge-agent-" + v.Name + " logs deployment/kedge-agent"})
		}
		for _, w := range v.Warnings {
			bad = append(bad, ailment{v.Name + ": " + w, "kedge agent manifest " + v.Name + " | kubectl apply -f -"})
		}
	}
	if len(agents) == 0 {
		bad = append(bad, ailment{"there is none", "kedge agent enroll NAME | kubectl apply -f -"})
	}
	return fmt.Sprintf("%d, all connected", len(agents)), bad, err
}

func examineRepositories(ctx context.Context, c *client.Client) (string, []ailment, error) {
	repositories, err := repositoryResource().list(ctx, c)
	var bad []ailment
	for _, v := range repositories {
		if v.Error != "" {
			bad = append(bad, ailment{v.URL + ": " + cell(v.Error), "kedge repo set " + v.URL + " --credential NAME, if it needs another one"})
		}
	}
	return fmt.Sprintf("%d, all can be read", len(repositories)), bad, err
}

func (a *app) examineDeployments(ctx context.Context, c *client.Client) (string, []ailment, error) {
	deployments, err := deploymentResource().list(ctx, c)
	var bad []ailment
	for _, v := range deployments {
		why := ""
		switch {
		case v.SourceError != "":
			why = v.SourceError
		case v.Sync == string(fleet.SyncFailed), v.Sync == string(fleet.SyncRewound):
			why = v.Sync + withDetail(v.Message)
		case v.Health == string(fleet.HealthFailed):
			why = v.Health + withDetail(v.Message)
		case v.Health == string(fleet.HealthStale):
			why = stale(v.Counts.StaleSince, a.Now())
		}
		if why != "" {
			bad = append(bad, ailment{v.Name + ": " + cell(why), "kedge status " + v.Name})
		}
		if n := v.Counts.HeldPrunes; n > 0 {
			bad = append(bad, ailment{v.Name + ": " + count(n, "deletion") + " held until confirmed", "kedge deploy prunes " + v.Name + ", then kedge deploy confirm-prune " + v.Name})
		}
	}
	return fmt.Sprintf("%d, none has failed", len(deployments)), bad, err
}

func withDetail(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
