package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func (a *app) agentConfigCommand() *cobra.Command {
	return group("config", "Say in which Git repository the configuration of an agent is, and see what it declares",
		a.agentConfigGetCommand(), a.agentConfigSetCommand(), a.agentConfigUnsetCommand())
}

func (a *app) agentConfigSetCommand() *cobra.Command {
	cmd := a.verb("set NAME URL", "Say in which Git repository the configuration of an agent is", 2,
		func(ctx context.Context, c *client.Client, args []string) error {
			set, err := client.Send[apiv1.AgentConfig](ctx, c, http.MethodPut, c.In("agents", args[0], "config"), apiv1.SetAgentConfig{RepoURL: args[1]})
			if err != nil {
				return err
			}
			return a.say("The configuration of agent %q is in %s. See what it declares with kedge agent config get %s.", args[0], set.RepoURL, args[0])
		})
	cmd.Long = "The server reads .kedge/agents/NAME/config.yaml, or GitLab's .gitlab/agents/NAME/config.yaml, from the default branch, and follows it.\n" +
		"A repository that needs a credential is added before: kedge repo add URL --credential NAME."
	cmd.Example = "kedge agent config set prod https://git.example/fleet.git"
	return cmd
}

func (a *app) agentConfigUnsetCommand() *cobra.Command {
	cmd := a.verb("unset NAME", "End the configuration of an agent in Git: every object stays", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := client.Do(ctx, c, http.MethodDelete, c.In("agents", args[0], "config"), nil); err != nil {
				return err
			}
			return a.say("Agent %q has no configuration in Git any more. What it declared is let go: its objects stay.", args[0])
		})
	return cmd
}

func (a *app) agentConfigGetCommand() *cobra.Command {
	var out outputFlags
	cmd := a.verb("get NAME", "Show the configuration of an agent in Git, what it declares and everything that is wrong with it", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := out.parse(); err != nil {
				return err
			}
			config, err := client.Get[apiv1.AgentConfig](ctx, c, c.In("agents", args[0], "config"))
			if client.Status(err) == http.StatusNotFound {
				return failure(fmt.Sprintf("there is no agent %q, or it has no configuration in Git", args[0]),
					fmt.Sprintf("kedge agent config set %s URL", args[0]))
			}
			if err != nil {
				return err
			}
			return a.printOne(out, config, "agent/"+config.Agent, func() error { return a.printAgentConfig(config, out) })
		})
	out.add(cmd)
	return cmd
}

// stateText says what a state means for what runs.
func stateText(state string) string {
	switch state {
	case "Invalid", "Refused", "Unreadable":
		return state + ": what was applied before holds"
	case "Absent":
		return state + ": the repository has no file for this agent, and nothing is declared"
	case "Pending":
		return state + ": it was not read yet"
	default:
		return state
	}
}

func (a *app) printAgentConfig(c apiv1.AgentConfig, o outputFlags) error {
	facts := [][]string{
		{"Agent", c.Agent},
		{"Repository", c.RepoURL},
		{"State", stateText(c.State)},
		{"File", orDash(c.File)},
		{"Commit", shortCommit(c.Commit)},
		{"Live", shortCommit(c.LiveCommit)},
	}
	if c.Message != "" {
		facts = append(facts, []string{"Problem", c.Message})
	}
	if err := a.facts(facts); err != nil {
		return err
	}
	if err := printFindings(a.Out, "Errors", c.Errors, c.MoreErrors); err != nil {
		return err
	}
	if err := printFindings(a.Out, "Not used", c.Notices, 0); err != nil {
		return err
	}
	if len(c.Deployments) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(c.Deployments))
	for _, d := range c.Deployments {
		state := "Declared"
		if !d.ReleasedAt.IsZero() {
			state = fmt.Sprintf("Released (%s): its objects stay in the cluster", output.Age(d.ReleasedAt, a.Now()))
		}
		rows = append(rows, []string{d.Name, d.Deployment, d.OnRemove, state})
	}
	if _, err := fmt.Fprintln(a.Out); err != nil {
		return err
	}
	return a.table(o, []string{"NAME", "DEPLOYMENT", "ON REMOVE", "STATE"}, rows...).Write(a.Out)
}

func printFindings(w io.Writer, title string, findings []apiv1.ConfigFinding, more int) error {
	if len(findings) == 0 {
		return nil
	}
	lines := []string{"", title + ":"}
	for _, f := range findings {
		lines = append(lines, "  "+fleet.ConfigFinding(f).String())
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (a *app) gitLabProjectCommand() *cobra.Command {
	set := a.verb("set PROJECT URL", "Say where a project is", 2, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodPut, c.In("gitlab-projects", args[0]), apiv1.SetGitLabProject{RepoURL: args[1]}); err != nil {
			return err
		}
		return a.say("GitLab project %s is at %s.", args[0], args[1])
	})
	set.Example = "kedge gitlab-project set 4711 https://gitlab.example/group/app.git"
	unset := a.verb("unset PROJECT", "Forget where a project is; what runs of it goes on", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.In("gitlab-projects", args[0]), nil); err != nil {
			return err
		}
		return a.say("It is forgotten where GitLab project %s is.", args[0])
	})
	cmd := group("gitlab-project", "Say where projects are that configuration files of GitLab's name by a number",
		set, unset, getCommand(a, "get", gitLabProjectResource()))
	cmd.Aliases = []string{"gitlab-projects"}
	cmd.Long = "A file of GitLab's names a project by its path, which is looked for on the host of the file, or by its number, which only GitLab knows:\n" +
		"then the tenant says here where it is."
	return cmd
}

func gitLabProjectResource() resource[apiv1.GitLabProject] {
	project := func(v apiv1.GitLabProject) string { return v.Project }
	return resource[apiv1.GitLabProject]{
		kind: "gitlab-project", use: "gitlab-projects", short: "List the URLs of GitLab projects", changes: []string{"agentconfig"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.GitLabProject, error) {
			return client.List[apiv1.GitLabProject](ctx, c, c.In("gitlab-projects"), client.Everything(), 0)
		},
		key: project, name: project,
		header: []string{"PROJECT", "URL"},
		rows:   func(v apiv1.GitLabProject, _ time.Time) [][]string { return [][]string{{v.Project, v.RepoURL}} },
	}
}
