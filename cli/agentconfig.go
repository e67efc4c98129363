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
	return group("config", "Manage the configuration of an agent in Git",
		a.agentConfigGetCommand(), a.agentConfigSetCommand(), a.agentConfigUnsetCommand())
}

func (a *app) agentConfigSetCommand() *cobra.Command {
	cmd := a.verb("set NAME URL", "Set the Git repository that holds the configuration of an agent", 2,
		func(ctx context.Context, c *client.Client, args []string) error {
			set, err := client.Send[apiv1.AgentConfig](ctx, c, http.MethodPut, c.In("agents", args[0], "config"), apiv1.SetAgentConfig{RepoURL: args[1]})
			if err != nil {
				return err
			}
			return a.say("The configuration of agent %q is in %s. To see its deployments: kedge agent config get %s", args[0], set.RepoURL, args[0])
		})
	cmd.Long = "The server reads .kedge/agents/NAME/config.yaml, or GitLab's .gitlab/agents/NAME/config.yaml, from the default branch, and follows it.\n" +
		"If the repository needs a credential, add it first: kedge repo add URL --credential NAME."
	cmd.Example = "kedge agent config set prod https://git.example/fleet.git"
	return cmd
}

func (a *app) agentConfigUnsetCommand() *cobra.Command {
	cmd := a.verb("unset NAME", "Remove the configuration of an agent in Git; all objects stay", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := client.Do(ctx, c, http.MethodDelete, c.In("agents", args[0], "config"), nil); err != nil {
				return err
			}
			return a.say("Agent %q no longer has a configuration in Git. Its declared deployments are released: their objects stay in the cluster.", args[0])
		})
	return cmd
}

func (a *app) agentConfigGetCommand() *cobra.Command {
	var out outputFlags
	cmd := a.verb("get NAME", "Show the configuration of an agent in Git, its deployments and its errors", 1,
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
		return state + ": the configuration that was applied before stays in force"
	case "Absent":
		return state + ": the repository has no file for this agent"
	case "Pending":
		return state + ": the server has not read it yet"
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
	set := a.verb("set PROJECT URL", "Set the URL of a project", 2, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodPut, c.In("gitlab-projects", args[0]), apiv1.SetGitLabProject{RepoURL: args[1]}); err != nil {
			return err
		}
		return a.say("GitLab project %s is at %s.", args[0], args[1])
	})
	set.Example = "kedge gitlab-project set 4711 https://gitlab.example/group/app.git"
	unset := a.verb("unset PROJECT", "Remove the URL of a project; deployments from it keep running", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.In("gitlab-projects", args[0]), nil); err != nil {
			return err
		}
		return a.say("URL of GitLab project %s removed.", args[0])
	})
	cmd := group("gitlab-project", "Map GitLab projects that configuration files name by number to repositories",
		set, unset, getCommand(a, "get", gitLabProjectResource()))
	cmd.Aliases = []string{"gitlab-projects"}
	cmd.Long = "A GitLab configuration file names a project by its path, which is resolved against the host of the file, or by its number, which only\n" +
		"GitLab can resolve. For numbers, set the repository URL here."
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
